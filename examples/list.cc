// SPDX-License-Identifier: MIT OR Apache-2.0
// A sorted set as a lock-free list (Harris 2001, Michael 2002): who removes a node first marks the node's own
// link by a tag, so that nobody links anything behind it, then unlinks it. Who comes by a marked node helps.
// Readers hold a guard; whoever has unlinked a node retires it.
#include <cstdio>
#include <thread>
#include <vector>

#include <ebbtide.hpp>

namespace {

std::atomic<long> alive{0};

class list {
    struct node {
        explicit node(int k) noexcept : key(k) { alive++; }
        ~node() { alive--; }
        int key;
        ebb::atomic_ptr<node, 1> next; // tagged: this node is being removed
    };
    using link = ebb::atomic_ptr<node, 1>;
    using pointer = link::value_type;

public:
    list() = default;
    list(const list &) = delete;
    list &operator=(const list &) = delete;
    ~list()
    {
        node *next;
        for (node *n = head_.load_unprotected().get(); n != nullptr; n = next) {
            next = n->next.load_unprotected().get();
            ebb::destroy(n);
        }
    }

    bool insert(int key)
    {
        node *fresh = nullptr;
        const ebb::guard pinned;
        for (;;) {
            const place at = find(pinned, key);
            if (at.found) {
                ebb::destroy(fresh); // nobody has seen it
                return false;
            }
            if (fresh == nullptr)
                fresh = ebb::make<node>(key);
            fresh->next.store(at.here);
            pointer expected = at.here;
            if (at.before->compare_exchange_strong(expected, fresh))
                return true;
        }
    }

    bool remove(int key)
    {
        const ebb::guard pinned;
        for (;;) {
            const place at = find(pinned, key);
            if (!at.found)
                return false;
            pointer next = at.here->next.load(pinned);
            if (next.tag() != 0 || // another thread was faster
                !at.here->next.compare_exchange_strong(next, next.with_tag(1)))
                continue;
            pointer expected = at.here;
            if (at.before->compare_exchange_strong(expected, next))
                ebb::retire(at.here.get());
            else
                (void)find(pinned, key); // which unlinks it
            return true;
        }
    }

    // Never waits, never writes.
    bool contains(int key) const noexcept
    {
        const ebb::guard pinned;
        pointer n = head_.load(pinned);
        while (n && n->key < key)
            n = n->next.load(pinned);
        return n && n->key == key && n->next.load(pinned).tag() == 0;
    }

private:
    struct place {
        link *before;
        pointer here; // the first that is not below the key, without a tag
        bool found;
    };

    place find(const ebb::guard &pinned, int key)
    {
        for (;;) {
            link *before = &head_;
            pointer here = before->load(pinned);
            while (here) {
                const pointer next = here->next.load(pinned);
                if (next.tag() != 0) {
                    pointer expected = here;
                    if (!before->compare_exchange_strong(expected, next.with_tag(0)))
                        break; // something has changed: from the start
                    ebb::retire(here.get());
                    here = next.with_tag(0);
                    continue;
                }
                if (here->key >= key)
                    return {before, here, here->key == key};
                before = &here->next;
                here = next;
            }
            if (!here)
                return {before, here, false};
        }
    }

    link head_;
};

constexpr int keys = 64, rounds = 20000;
constexpr unsigned threads = 4;

// What each thread has added and removed, by key, must add up to what is there.
int count_up()
{
    list set;
    std::vector<std::vector<int>> balance(threads, std::vector<int>(keys));
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; t++)
        running.emplace_back([&set, &mine = balance[t], t] {
            unsigned random = t + 1;
            for (int i = 0; i < rounds; i++) {
                random = random * 1664525 + 1013904223;
                const int key = static_cast<int>(random >> 16) % keys;
                switch (random >> 30) {
                case 0:
                    mine[static_cast<std::size_t>(key)] += set.insert(key) ? 1 : 0;
                    break;
                case 1:
                    mine[static_cast<std::size_t>(key)] -= set.remove(key) ? 1 : 0;
                    break;
                default:
                    (void)set.contains(key);
                }
            }
        });
    for (std::thread &thread : running)
        thread.join();
    int wrong = 0, there = 0;
    for (int key = 0; key < keys; key++) {
        int sum = 0;
        for (const std::vector<int> &mine : balance)
            sum += mine[static_cast<std::size_t>(key)];
        wrong += sum != (set.contains(key) ? 1 : 0);
        there += sum;
    }
    ebb::rcu_barrier(); // of the removed ones none is left
    wrong += alive.load() != there;
    return wrong;
}

} // namespace

int main()
{
    int wrong = count_up();
    wrong += alive.load() != 0; // the others have gone with the list
    std::printf("a lock-free set, %u threads of %d operations: %s\n", threads, rounds,
                wrong == 0 ? "all adds up" : "WRONG");
    return wrong == 0 ? 0 : 1;
}
