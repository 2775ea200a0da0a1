// SPDX-License-Identifier: MIT OR Apache-2.0
// The operations of ebbtide/detail/atomic.h over Relacy's atomics, which remember the values that
// each thread may still read under C11's rules and choose among them by the schedule.
//
// A mutant named "function:operation" weakens that operation in that function: an acquire or a
// release becomes relaxed, a full fence goes, store_full loses its fence and store_full_release
// its release.
#ifndef EBB_MODEL_RELACY_ATOMICS_H
#define EBB_MODEL_RELACY_ATOMICS_H

#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include <cerrno>

// Relacy renames these for programs that it owns; the library's sources must not see that.
#pragma push_macro("errno")
#include <relacy/relacy.hpp>
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno
#pragma pop_macro("errno")

namespace model {

// The mutant of this run; empty: none. Set before the first schedule, fixed from then on.
inline const char *&mutant_name()
{
    static const char *name = "";
    return name;
}

// What mutants the sources that ran have asked for: a name that is not among them is no mutant.
struct Asked {
    const char *function; // NULL: the name is the operation's alone
    const char *operation;
};

struct AskedNames {
    Asked names[128];
    size_t count;
};

inline AskedNames &asked()
{
    static AskedNames the_names = {};
    return the_names;
}

inline void note(const char *function, const char *operation)
{
    AskedNames &all = asked();
    for (size_t i = 0; i < all.count; i++) {
        if (all.names[i].function == function && all.names[i].operation == operation) {
            return;
        }
    }
    RL_ASSERT(all.count < sizeof all.names / sizeof all.names[0]);
    all.names[all.count++] = {function, operation};
}

inline bool is_named(const Asked &asked)
{
    const char *name = mutant_name();
    if (asked.function == nullptr) {
        return std::strcmp(name, asked.operation) == 0;
    }
    size_t length = std::strlen(asked.function);
    return std::strncmp(name, asked.function, length) == 0 && name[length] == ':' &&
           std::strcmp(name + length + 1, asked.operation) == 0;
}

inline bool is_weakened(const char *function, const char *operation)
{
    note(function, operation);
    return is_named({function, operation});
}

inline bool is_mutant(const char *name) { return is_weakened(nullptr, name); }

// Relacy's objects live within one schedule. Globals of the sources are made anew for each one.
class Global {
public:
    static void make_all()
    {
        for (Global *g = first(); g != nullptr; g = g->next_) {
            g->make();
        }
    }
    static void end_all()
    {
        for (Global *g = first(); g != nullptr; g = g->next_) {
            g->end();
        }
    }

protected:
    Global() : next_(nullptr) {}
    virtual ~Global() = default;
    void enlist() { next_ = std::exchange(first(), this); }
    virtual void make() = 0;
    virtual void end() = 0;

private:
    static Global *&first()
    {
        static Global *head = nullptr;
        return head;
    }
    Global *next_;
};

template <typename Real, typename... First> class Placed : Global {
public:
    Placed(First... first) : first_(first...) { begin(); }
    ~Placed()
    {
        if (!global_) {
            end();
        }
    }
    Placed(const Placed &) = delete;
    Placed &operator=(const Placed &) = delete;
    Real &real() { return *std::launder(reinterpret_cast<Real *>(place_)); }
    const Real &real() const { return *std::launder(reinterpret_cast<const Real *>(place_)); }

private:
    void begin()
    {
        if (global_) {
            enlist();
        } else {
            make();
        }
    }
    void make() override
    {
        std::apply([this](auto... first) { new (place_) Real(first...); }, first_);
    }
    void end() override { real().~Real(); }

    const bool global_ = !rl::is_ctx();
    std::tuple<First...> first_{};
    alignas(Real) unsigned char place_[sizeof(Real)];
};

// Zero from the start, as the library's memory is.
template <typename T> class Atomic : public Placed<rl::atomic<T>, T> {
public:
    Atomic() : Atomic(T()) {}
    Atomic(T first) : Placed<rl::atomic<T>, T>(first) {}
    Atomic &operator=(const Atomic &from) // C's assignment of a whole struct
    {
        this->real().store(from.real().load(rl::mo_relaxed, $), rl::mo_relaxed, $);
        return *this;
    }
};

// A place where another thread may come between. Not rl::yield: behind that, Relacy lets a thread no
// longer read values that are out of date.
inline void pause() { rl::ctx().sched(); }

// A signal handler, which comes once, before any of the atomic operations of its thread. The kernel's
// delivery of a signal and the return from it are taken to be full fences of that thread.
struct Interrupt {
    unsigned thread = 0;
    void (*handler)(void *context) = nullptr;
    void *context = nullptr;
};

inline Interrupt &interrupt()
{
    static Interrupt the_interrupt;
    return the_interrupt;
}

inline void delivery_fence()
{
    if (!is_mutant("delivery_without_fence")) {
        rl::atomic_thread_fence(rl::mo_seq_cst, $);
    }
}

inline void interrupt_perhaps()
{
    Interrupt &coming = interrupt();
    if (coming.handler != nullptr && coming.thread == rl::thread_index() && rl::rand(6) == 0) {
        delivery_fence();
        std::exchange(coming.handler, nullptr)(coming.context);
        delivery_fence();
    }
}

template <typename T> T load(const Atomic<T> *p, rl::memory_order order, rl::debug_info_param where)
{
    interrupt_perhaps();
    return p->real().load(order, where);
}

template <typename T, typename V>
void store(Atomic<T> *p, V value, rl::memory_order order, rl::debug_info_param where)
{
    interrupt_perhaps();
    p->real().store(static_cast<T>(value), order, where);
}

template <typename T, typename V>
T exchange(Atomic<T> *p, V value, rl::memory_order order, rl::debug_info_param where)
{
    return p->real().exchange(static_cast<T>(value), order, where);
}

template <typename T, typename V>
bool cas(Atomic<T> *p, T *expected, V value, rl::memory_order order, rl::memory_order failure,
         rl::debug_info_param where)
{
    return p->real().compare_exchange_strong(*expected, static_cast<T>(value), order, where,
                                             failure, where);
}

// The sources keep some words plain, and use them as atomics now and then. A flag has a shadow, which
// is what the atomic operations work on; the others are hints, whose order does not matter.
struct Shadow {
    const bool *flag = nullptr;
    Atomic<bool> *atomic = nullptr;
};

inline Shadow &shadow() // of the one clock of a world
{
    static Shadow the_shadow;
    return the_shadow;
}

inline bool load(const bool *p, rl::memory_order order, rl::debug_info_param where)
{
    RL_ASSERT(p == shadow().flag);
    return load(shadow().atomic, order, where);
}

inline void store(bool *p, bool value, rl::memory_order order, rl::debug_info_param where)
{
    RL_ASSERT(p == shadow().flag);
    *p = value;
    store(shadow().atomic, value, order, where);
}

inline uint64_t load(const uint64_t *p, rl::memory_order, rl::debug_info_param) { return *p; }

inline void store(uint64_t *p, uint64_t value, rl::memory_order, rl::debug_info_param)
{
    *p = value;
}

inline void store(uint32_t *p, uint32_t value, rl::memory_order, rl::debug_info_param)
{
    *p = value;
}

inline void fence(bool weak, rl::debug_info_param where)
{
    interrupt_perhaps();
    if (!weak) {
        rl::atomic_thread_fence(rl::mo_seq_cst, where);
    }
}

template <typename T, typename V>
void store_full(Atomic<T> *p, V value, bool without_fence, bool without_release,
                rl::debug_info_param where)
{
    store(p, value, without_release ? rl::mo_relaxed : rl::mo_release, where);
    fence(without_fence, where);
}

} // namespace model

#define EBBI_ATOMIC(type) model::Atomic<type>
#define EBB_MODEL_WEAK(operation)                                                                  \
    (__extension__({                                                                               \
        static const bool weak_here = model::is_weakened(__func__, operation);                     \
        weak_here;                                                                                 \
    }))
#define EBB_MODEL_ORDER(operation, order) (EBB_MODEL_WEAK(operation) ? rl::mo_relaxed : (order))

#define ebbi_compiler_fence() ((void)0)
#define ebbi_load_relaxed(p) model::load((p), rl::mo_relaxed, $)
#define ebbi_load_acquire(p) model::load((p), EBB_MODEL_ORDER("load_acquire", rl::mo_acquire), $)
#define ebbi_store_relaxed(p, v) model::store((p), (v), rl::mo_relaxed, $)
#define ebbi_store_release(p, v)                                                                   \
    model::store((p), (v), EBB_MODEL_ORDER("store_release", rl::mo_release), $)
#define ebbi_exchange_acquire(p, v)                                                                \
    model::exchange((p), (v), EBB_MODEL_ORDER("exchange_acquire", rl::mo_acquire), $)
#define ebbi_exchange_release(p, v)                                                                \
    model::exchange((p), (v), EBB_MODEL_ORDER("exchange_release", rl::mo_release), $)
#define ebbi_exchange_acq_rel(p, v)                                                                \
    model::exchange((p), (v), EBB_MODEL_ORDER("exchange_acq_rel", rl::mo_acq_rel), $)
#define ebbi_fetch_or_release(p, v)                                                                \
    (p)->real().fetch_or((v), EBB_MODEL_ORDER("fetch_or_release", rl::mo_release), $)
#define ebbi_fetch_or_acq_rel(p, v)                                                                \
    (p)->real().fetch_or((v), EBB_MODEL_ORDER("fetch_or_acq_rel", rl::mo_acq_rel), $)
#define ebbi_fetch_add_relaxed(p, v) (p)->real().fetch_add((v), rl::mo_relaxed, $)
#define ebbi_fetch_add_acq_rel(p, v)                                                               \
    (p)->real().fetch_add((v), EBB_MODEL_ORDER("fetch_add_acq_rel", rl::mo_acq_rel), $)
#define ebbi_fetch_sub_relaxed(p, v) (p)->real().fetch_sub((v), rl::mo_relaxed, $)
#define ebbi_fetch_sub_release(p, v)                                                               \
    (p)->real().fetch_sub((v), EBB_MODEL_ORDER("fetch_sub_release", rl::mo_release), $)

#define ebbi_cas_relaxed(p, expected, v)                                                           \
    model::cas((p), (expected), (v), rl::mo_relaxed, rl::mo_relaxed, $)
#define ebbi_cas_acquire(p, expected, v)                                                           \
    model::cas((p), (expected), (v), EBB_MODEL_ORDER("cas_acquire", rl::mo_acquire),               \
               rl::mo_relaxed, $)
#define ebbi_cas_release(p, expected, v)                                                           \
    model::cas((p), (expected), (v), EBB_MODEL_ORDER("cas_release", rl::mo_release),               \
               rl::mo_relaxed, $)
#define ebbi_cas_acq_rel(p, expected, v)                                                           \
    model::cas((p), (expected), (v), EBB_MODEL_ORDER("cas_acq_rel", rl::mo_acq_rel),               \
               EBB_MODEL_ORDER("cas_acq_rel", rl::mo_acquire), $)

#define ebbi_fence_full() model::fence(EBB_MODEL_WEAK("fence_full"), $)
#define ebbi_fence_loads() model::fence(EBB_MODEL_WEAK("fence_loads"), $)
#define ebbi_store_full(p, v)                                                                      \
    model::store_full((p), (v), EBB_MODEL_WEAK("store_full"),                                      \
                      EBB_MODEL_WEAK("store_full_release"), $)

#endif
