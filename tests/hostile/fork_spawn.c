// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that are started by posix_spawn (0) or vfork (1) in three threads that allocate.
#include "hostile.h"
#include <spawn.h>

extern char **environ;

static void *spawns(void *argument)
{
    char *arguments[] = {"true", NULL};
    unsigned seed = 1;
    for (int i = 0; i < 100; i++) {
        churn(&seed, 500);
        pid_t child;
        if (argument == NULL) {
            int error = posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ);
            MUST(error == 0, "posix_spawn: %s", strerror(error));
        } else {
            child = vfork();
            if (child == 0) {
                execv("/bin/true", arguments);
                _exit(127);
            }
        }
        int status = 1;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            continue;
        MUST(status == 0, "a child ended with %s", status_text(status));
    }
    return NULL;
}

static void spawn(long with_vfork)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(spawns, (void *)with_vfork);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    spawn(argc > 1 ? atol(argv[1]) : 0);
    return pass("300 programs");
}
