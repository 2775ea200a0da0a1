// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_METRICS_FILE: the file is replaced whole, again and again, by whoever is there to do it, and a bad day of the
// disk is told once. Each case runs again as a child that has the option, in a folder of its own.
#include "hostile.h"
#include <sys/stat.h>

static char folder[] = "/tmp/metrics.XXXXXX";
static const char *topic_name;

static void runs_again(void *option)
{
    setenv("EBB_METRICS_FILE", option, 1);
    setenv("EBB_METRICS_MS", "1000", 1);
    execl("/proc/self/exe", "metrics", topic_name, NULL);
    _exit(3);
}

// Of what has that name now; 0: nothing.
static ino_t file_now(const char *name)
{
    struct stat state;
    return stat(name, &state) == 0 ? state.st_ino : 0;
}

static int is_whole(const char *name)
{
    static char text[1 << 16];
    int file = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    close(file);
    return length > 1000 && strncmp(text, "# HELP ebbtide_", 15) == 0 &&
           memcmp(text + length - 6, "# EOF\n", 6) == 0;
}

static void works(void)
{
    static void *blocks[500];
    for (size_t i = 0; i < 500; i++)
        blocks[i] = malloc(64 + i);
    for (size_t i = 0; i < 500; i++)
        free(blocks[i]);
    nap_ms(1);
}

static void sleeps_only(void) { nap_ms(20); }

// The inode of a file that has gone may be that of the next one: so it is held open.
static void awaits_next(const char *name, void (*meanwhile)(void))
{
    int held = open(name, O_RDONLY | O_CLOEXEC);
    ino_t before = file_now(name);
    while (file_now(name) == before)
        meanwhile();
    close(held);
}

static void *sleeper(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void begin(const char *topic)
{
    topic_name = topic;
    MUST(mkdtemp(folder) != NULL && chdir(folder) == 0, "no folder");
}

static void run(const char *option, const char *expected)
{
    char err[4096];
    int status = run_child(runs_again, (void *)(uintptr_t)option, 50, err, sizeof err);
    MUST(status == 0, "%s, stderr: %s", status_text(status), err);
    const char *found = strstr(err, expected);
    MUST(found != NULL && (*expected == 0 ? *err == 0 : strstr(found + 1, expected) == NULL),
         "not once \"%s\": %s", expected, err);
}

static int is_child(void) { return getenv("EBB_METRICS_FILE") != NULL; }

// One thread: at the start, at slow calls when it is time, at the exit.
static void alone(long unused)
{
    (void)unused;
    if (is_child()) {
        if (!is_whole("a.prom"))
            _exit(4);
        awaits_next("a.prom", works);
        link("a.prom", "held"); // the exit's file is another one
        exit(0);
    }
    begin("alone");
    run("a.prom", "");
    MUST(is_whole("a.prom") && is_whole("held"), "a file is not whole");
    MUST(file_now("a.prom") != file_now("held"), "nothing at the exit");
}

// The program sleeps: the helper writes. %p is the process.
static void helped(long unused)
{
    (void)unused;
    if (is_child()) {
        char name[64];
        snprintf(name, sizeof name, "a.%d.prom", (int)getpid());
        (void)start(sleeper, NULL);
        awaits_next(name, sleeps_only);
        awaits_next(name, sleeps_only);
        _exit(is_whole(name) ? 0 : 4);
    }
    begin("helped");
    run("a.%p.prom", "");
}

// A child that executes nothing leaves the file alone, whatever it does and how it ends.
static void forked(long unused)
{
    (void)unused;
    if (is_child()) {
        ino_t before = file_now("a.prom");
        int held = open("a.prom", O_RDONLY | O_CLOEXEC);
        pid_t child = fork();
        if (child == 0) {
            double end = now() + 2.5;
            while (now() < end)
                works();
            exit(0);
        }
        if (waitpid(child, NULL, 0) != child || file_now("a.prom") != before)
            _exit(4);
        close(held);
        awaits_next("a.prom", works); // the parent goes on
        exit(0);
    }
    begin("forked");
    run("a.prom", "");
}

// No such folder: one line, and it is tried again.
static void absent(long unused)
{
    (void)unused;
    if (is_child()) {
        double end = now() + 2.5;
        while (now() < end)
            works();
        mkdir("later", 0700);
        while (!is_whole("later/a.prom"))
            works();
        exit(0);
    }
    begin("absent");
    run("later/a.prom",
        "cannot write the metrics: no such file or directory (errno 2): later/a.prom");
}

// No room: the old file stays, nothing lies beside it, one line says so, and no signal ends the process.
static void full(long unused)
{
    (void)unused;
    if (is_child()) {
        struct rlimit little = {100, 100};
        ino_t before = file_now("a.prom");
        setrlimit(RLIMIT_FSIZE, &little);
        double end = now() + 2.5;
        while (now() < end)
            works();
        exit(file_now("a.prom") == before && is_whole("a.prom") ? 0 : 4);
    }
    begin("full");
    run("a.prom", "cannot write the metrics: too large (errno 27): a.prom");
    MUST(unlink("a.prom") == 0 && chdir("/") == 0 && rmdir(folder) == 0,
         "something lies beside the file");
}

static void too_long(long unused)
{
    (void)unused;
    static char option[6000];
    if (is_child())
        exit(0);
    begin("too_long");
    memset(option, 'x', 5000);
    run(option, "is not a file's name: ignored");
    memset(option, 0, sizeof option);
    for (int i = 0; i < 100; i++)
        strcat(option, "%p");
    run(option, "name too long");
    MUST(chdir("/") == 0 && rmdir(folder) == 0, "a file was made");
}

// What is no regular file stays what it is; what is one keeps its mode.
static void others(long unused)
{
    (void)unused;
    if (is_child())
        exit(0);
    begin("others");
    struct stat state;
    MUST(mkfifo("fifo", 0600) == 0 && symlink("target", "link") == 0, "no files");
    run("fifo", "cannot write the metrics: no regular file (errno 22): fifo");
    run("link", "cannot write the metrics: no regular file (errno 22): link");
    MUST(lstat("fifo", &state) == 0 && S_ISFIFO(state.st_mode), "the fifo was replaced");
    MUST(lstat("link", &state) == 0 && S_ISLNK(state.st_mode), "the link was replaced");
    close(open("kept", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    run("kept", "");
    MUST(is_whole("kept") && stat("kept", &state) == 0 && (state.st_mode & 0777) == 0600,
         "another mode");
}

// Nobody reads stderr any more: no line of ours ends the program.
static void unread(long unused)
{
    (void)unused;
    int ends[2], status = -1;
    if (is_child())
        exit(0);
    begin("unread");
    MUST(pipe(ends) == 0, "no pipe");
    close(ends[0]);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(ends[1], 2);
        runs_again("absent/a.prom");
    }
    MUST(waitpid(child, &status, 0) == child && status == 0, "%s", status_text(status));
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {
        {"alone", alone},   {"helped", helped}, {"forked", forked},
        {"absent", absent}, {"full", full},     {"too_long", too_long},
        {"others", others}, {"unread", unread}, {NULL, NULL}};
    if (!under_ebbtide())
        skip("there would be no metrics");
    run_topic(topics, argc, argv);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? pass("%s", topic_name) : 1;
}
