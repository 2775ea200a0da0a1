// SPDX-License-Identifier: MIT OR Apache-2.0
// Objects that go from thread to thread, `hops` times, and are resized on the way: by queues, rings, or an array that
// all share. truth_threads KIND HOPS ITEMS
#include "truth.h"

enum { THREADS = 8, ROOM = 256, PLACES = 512 };

// A queue under a lock, or a ring of one writer and one reader.
static struct channel {
    pthread_mutex_t lock;
    struct item items[ROOM];
    _Atomic uint32_t head, tail;
} channels[THREADS];

static struct place {
    atomic_flag is_taken;
    struct item item;
} places[PLACES];

static enum { QUEUE, RING, ARRAY } kind;
static int hops, items_each;
static _Atomic int left; // items that are not freed

static bool put(struct channel *channel, struct item item)
{
    uint32_t tail = channel->tail;
    if (tail - channel->head == ROOM) {
        return false;
    }
    channel->items[tail % ROOM] = item;
    channel->tail = tail + 1;
    return true;
}

static bool take(struct channel *channel, struct item *item)
{
    uint32_t head = channel->head;
    if (head == channel->tail) {
        return false;
    }
    *item = channel->items[head % ROOM];
    channel->head = head + 1;
    return true;
}

static bool swap_place(struct item *item)
{
    struct place *place = &places[dice(PLACES)];
    if (atomic_flag_test_and_set(&place->is_taken)) {
        return false;
    }
    struct item kept = place->item;
    place->item = *item;
    *item = kept;
    atomic_flag_clear(&place->is_taken);
    return true;
}

static bool send_to(int to, struct item item)
{
    struct channel *channel = &channels[to];
    if (kind != QUEUE) {
        return put(channel, item);
    }
    pthread_mutex_lock(&channel->lock);
    bool is_sent = put(channel, item);
    pthread_mutex_unlock(&channel->lock);
    return is_sent;
}

static bool receive(struct item *item)
{
    struct channel *channel = &channels[me - 1];
    if (kind != QUEUE) {
        return take(channel, item);
    }
    pthread_mutex_lock(&channel->lock);
    bool is_there = take(channel, item);
    pthread_mutex_unlock(&channel->lock);
    return is_there;
}

static void finish(struct item item)
{
    end(item);
    left--;
}

// To the next thread, or to any; where there is no room it ends here.
static void pass_on(struct item item)
{
    if (kind == ARRAY) {
        if (!swap_place(&item) || (item.p != NULL && item.hops >= hops)) {
            finish(item);
        } else if (item.p != NULL) {
            item = resize(item, 1 + dice(3000));
            item.hops++;
            pass_on(item);
        }
        return;
    }
    int to = kind == RING ? me % THREADS : (int)dice(THREADS);
    if (!send_to(to, item)) {
        finish(item);
    }
}

static void handle(struct item item)
{
    if (item.hops >= hops) {
        finish(item);
        return;
    }
    item = resize(item, dice(50) == 0 ? 100000 + dice(100000) : 1 + dice(600));
    item.hops++;
    pass_on(item);
}

static void *work(void *number)
{
    struct item item;
    begin_thread((int)(intptr_t)number);
    for (int i = 0; i < items_each; i++) {
        item = make_any();
        item.hops = 0;
        pass_on(item);
        while (kind != ARRAY && receive(&item)) {
            handle(item);
        }
    }
    while (kind != ARRAY && left > 0) {
        if (receive(&item)) {
            handle(item);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    MUST(argc == 4);
    kind = argv[1][0] == 'q' ? QUEUE : argv[1][0] == 'r' ? RING : ARRAY;
    hops = atoi(argv[2]);
    items_each = atoi(argv[3]);
    left = items_each * THREADS;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_mutex_init(&channels[i].lock, NULL);
    }
    for (intptr_t i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < PLACES; i++) {
        if (places[i].item.p != NULL) {
            finish(places[i].item);
        }
    }
    MUST(left == 0);
    return tell_truth(THREADS + 1);
}
