// SPDX-License-Identifier: MIT OR Apache-2.0
// The lock-free blocks beside the library.
#include <ebbtide/deque.h>
#include <ebbtide/map.h>
#include <ebbtide/queue.h>
#include <ebbtide/stack.h>

#include <stddef.h>

int main(void)
{
    struct ebb_queue *queue = ebb_queue_create();
    int item = 1;
    void *found = NULL;
    if (queue == NULL || ebb_queue_push(queue, &item) != 0 || !ebb_queue_pop(queue, &found)) {
        return 1;
    }
    ebb_queue_destroy(queue);
    return found == &item ? 0 : 1;
}
