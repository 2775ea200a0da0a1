// SPDX-License-Identifier: MIT OR Apache-2.0
// touch-cold: builds a linked structure of many nodes, a list in the order of
// allocation with a tree over them in random order, touches every node along both,
// and frees the nodes in random order. So from the second round on the allocator
// hands out memory that is cold and scattered. How it places nodes and whether it
// touches them itself is what the time shows, and what cache misses under
// callgrind show better.
#include "harness/common.h"

static uint64_t node_count = 1000000;
static uint64_t round_count = 5;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"nodes", &node_count, 2, 100000000, "nodes of 48 bytes"},
    {"rounds", &round_count, 1, 1000000, "times to build, touch and free them"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the random order"},
};

static const struct bench_program program = {
    "touch-cold", "lists and trees are built, touched and freed in random order", options,
    sizeof options / sizeof options[0]};

struct node {
    struct node *next; // in the order of allocation
    struct node *left;
    struct node *right;
    uint64_t number;
    uint64_t inverse; // ~number, unless somebody else wrote here
    uint64_t visits;
};
_Static_assert(sizeof(struct node) == 48, "the size that --help names");

// A perfectly balanced tree of 2^64 nodes is no deeper.
enum { DEPTH_MAX = 64, GROWTH_MAX_PERCENT = 50 };

static struct {
    struct bench_clock build;
    struct bench_clock touch;
    struct bench_clock release;
} clocks;

static void add_time(struct bench_clock *sum, struct bench_clock *started)
{
    bench_clock_stop(started);
    sum->wall_s += started->wall_s;
    sum->cpu_s += started->cpu_s;
    sum->system_s += started->system_s;
    sum->minor_faults += started->minor_faults;
    sum->major_faults += started->major_faults;
}

static void build(struct node **nodes)
{
    struct bench_clock clock;
    bench_clock_start(&clock);
    struct node *previous = NULL;
    for (uint64_t i = 0; i < node_count; i++) {
        struct node *node = (struct node *)(void *)bench_alloc(sizeof *node);
        *node = (struct node){.next = previous, .number = i, .inverse = ~i};
        nodes[i] = previous = node;
    }
    add_time(&clocks.build, &clock);
}

// Untimed: work of the harness. The node at i of the random order has those at
// 2 i + 1 and 2 i + 2 as children.
static uint32_t shuffle_into_tree(struct node **nodes, uint32_t r)
{
    for (uint64_t i = node_count - 1; i > 0; i--) {
        r = bench_lcg(r);
        uint64_t other = ((uint64_t)r * (i + 1)) >> 32;
        struct node *kept = nodes[i];
        nodes[i] = nodes[other];
        nodes[other] = kept;
    }
    for (uint64_t i = 0; i < node_count; i++) {
        nodes[i]->left = 2 * i + 1 < node_count ? nodes[2 * i + 1] : NULL;
        nodes[i]->right = 2 * i + 2 < node_count ? nodes[2 * i + 2] : NULL;
    }
    return r;
}

// Each walk is bounded, so that overlapping nodes fail a check instead of walking for ever.
static uint64_t walk_list(struct node *node)
{
    uint64_t intact = 0;
    for (uint64_t seen = 0; node != NULL && seen < node_count; node = node->next, seen++) {
        node->visits++;
        intact += node->inverse == ~node->number && node->number == node_count - 1 - seen;
    }
    return intact;
}

// Depth first, by a stack of right children that wait. Counts nodes that are intact
// and that the list has visited once before.
static uint64_t walk_tree(struct node *root)
{
    struct node *waiting[DEPTH_MAX];
    int depth = 0;
    uint64_t intact = 0;
    struct node *node = root;
    for (uint64_t seen = 0; node != NULL && seen < node_count; seen++) {
        intact += node->inverse == ~node->number && ++node->visits == 2;
        if (node->right != NULL && depth < DEPTH_MAX)
            waiting[depth++] = node->right;
        if (node->left != NULL)
            node = node->left;
        else
            node = depth > 0 ? waiting[--depth] : NULL;
    }
    return intact;
}

// True if both walks met every node as it was made.
static bool touch(struct node *last, struct node *root)
{
    struct bench_clock clock;
    bench_clock_start(&clock);
    uint64_t listed = walk_list(last);
    uint64_t in_tree = walk_tree(root);
    add_time(&clocks.touch, &clock);
    return listed == node_count && in_tree == node_count;
}

// Resident memory beside the first round's, all nodes live: reused memory adds nothing.
static double growth_percent(double first_kb)
{
    return 100.0 * ((double)bench_rss_kb() / first_kb - 1.0);
}

static void release(struct node **nodes)
{
    struct bench_clock clock;
    bench_clock_start(&clock);
    for (uint64_t i = 0; i < node_count; i++)
        free(nodes[i]);
    add_time(&clocks.release, &clock);
}

static struct bench_clock sum_clocks(void)
{
    const struct bench_clock *parts[] = {&clocks.build, &clocks.touch, &clocks.release};
    struct bench_clock sum = {0};
    for (int i = 0; i < 3; i++) {
        sum.wall_s += parts[i]->wall_s;
        sum.cpu_s += parts[i]->cpu_s;
        sum.system_s += parts[i]->system_s;
        sum.minor_faults += parts[i]->minor_faults;
        sum.major_faults += parts[i]->major_faults;
    }
    return sum;
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    struct node **nodes = bench_map(node_count * sizeof *nodes);
    uint32_t r = (uint32_t)seed;
    uint64_t rounds_intact = 0;
    double first_kb = 0, growth = 0;
    for (uint64_t round = 0; round < round_count; round++) {
        build(nodes);
        struct node *last = nodes[node_count - 1];
        r = shuffle_into_tree(nodes, r);
        rounds_intact += touch(last, nodes[0]);
        first_kb = round == 0 ? (double)bench_rss_kb() : first_kb;
        growth = growth_percent(first_kb);
        release(nodes);
    }

    double made = (double)(node_count * round_count);
    struct bench_clock clock = sum_clocks();
    bench_figures_of(&result, &clock, 2 * node_count * round_count);
    bench_figure(&result, "malloc_ns", clocks.build.cpu_s * 1e9 / made);
    bench_figure(&result, "touch_ns", clocks.touch.cpu_s * 1e9 / made);
    bench_figure(&result, "free_ns", clocks.release.cpu_s * 1e9 / made);
    bench_figure(&result, "rss_growth_percent", growth);
    bench_verify(&result, "contents_intact", rounds_intact == round_count);
    bench_verify(&result, "freed_memory_reused", growth <= GROWTH_MAX_PERCENT);
    return bench_report(&program, &result);
}
