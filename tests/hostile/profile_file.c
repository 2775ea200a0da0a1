// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_PROFILE: the file that the exit writes, by whatever name, and where there can be none one line says why. Each case
// runs again as a child that has the option, in a folder of its own.
#include "hostile.h"
#include <sys/stat.h>

static char folder[] = "/tmp/profile.XXXXXX";
static const char *topic_name;

static void runs_again(void *option)
{
    setenv("EBB_PROFILE", option, 1);
    execl("/proc/self/exe", "profile_file", topic_name, NULL);
    _exit(3);
}

static int is_child(void) { return getenv("EBB_PROFILE") != NULL; }

static void child(void)
{
    for (size_t i = 0; i < 2000; i++)
        free(malloc(1000 + i));
    exit(0);
}

static void begin(const char *topic)
{
    topic_name = topic;
    MUST(mkdtemp(folder) != NULL && chdir(folder) == 0, "no folder");
}

static void run(const char *option, const char *expected)
{
    char err[8192];
    int status = run_child(runs_again, (void *)(uintptr_t)option, 20, err, sizeof err);
    MUST(status == 0, "%s, stderr: %s", status_text(status), err);
    MUST(strstr(err, expected) != NULL, "not \"%s\": %s", expected, err);
}

static off_t bytes_of(const char *name)
{
    struct stat state;
    return stat(name, &state) == 0 ? state.st_size : 0;
}

// As long as the kernel takes them; %p is the process.
static void named(long unused)
{
    (void)unused;
    static char option[6000];
    if (is_child())
        child();
    begin("named");
    run("64k,a.pb", "heap profile in a.pb");
    MUST(bytes_of("a.pb") > 100, "no profile");
    strcpy(option, "64k,");
    for (int i = 0; i < 1500; i++)
        strcat(option, "./");
    strcat(option, "b.%p.pb");
    run(option, "heap profile in ./././");
    MUST(system("test -s b.[1-9]*.pb") == 0, "no profile of a long name");
    memset(option + 4, 'x', 5000);
    run(option, "perhaps with a comma and a file's name: ignored");
    memset(option + 4, 0, 5000);
    for (int i = 0; i < 2000; i++)
        strcat(option, "%p");
    run(option, "no heap profile: name too long (errno 36): ");
}

// Nobody reads: the process ends all the same. Somebody does, slowly: all of it comes.
static void fifo(long unused)
{
    (void)unused;
    int status = -1;
    char byte;
    off_t bytes = 0;
    if (is_child())
        child();
    begin("fifo");
    run("1,a.pb", "heap profile in a.pb");
    MUST(bytes_of("a.pb") > 0 && mkfifo("fifo", 0600) == 0, "no files");
    run("64k,fifo", "no heap profile: nobody reads it (errno 6): fifo");
    int reader = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    MUST(reader >= 0 && fcntl(reader, F_SETPIPE_SZ, 4096) == 4096, "no reader");
    pid_t writer = fork();
    if (writer == 0)
        runs_again("1,fifo");
    while (waitpid(writer, &status, WNOHANG) == 0 || read(reader, &byte, 1) == 1) {
        for (int i = 0; i < 500 && read(reader, &byte, 1) == 1; i++)
            bytes++;
        bytes += read(reader, &byte, 1) == 1;
        nap_ms(1);
    }
    MUST(status == 0 && bytes > bytes_of("a.pb") / 2, "%s, %ld bytes of some %ld",
         status_text(status), (long)bytes, (long)bytes_of("a.pb"));
}

static void absent(long unused)
{
    (void)unused;
    if (is_child())
        child();
    begin("absent");
    run("64k,absent/a.pb", "no heap profile: no such file or directory (errno 2): absent/a.pb");
    run("64k,/dev/full", "no heap profile: no space left (errno 28): /dev/full");
    run("64k,.", "no heap profile: a directory (errno 21): .");
}

int main(int argc, char **argv)
{
    static const struct topic topics[] = {
        {"named", named}, {"fifo", fifo}, {"absent", absent}, {NULL, NULL}};
    if (!under_ebbtide())
        skip("there would be no profile");
    run_topic(topics, argc, argv);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? pass("%s", topic_name) : 1;
}
