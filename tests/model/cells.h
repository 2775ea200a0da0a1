// SPDX-License-Identifier: MIT OR Apache-2.0
// For sources that keep plain integers and pointers and give them to the operations of
// ebbtide/detail/atomic.h (src/region). A model says which of these words its threads share; each has
// a Relacy atomic then, found by its address. Cell<T> stands for the integer types while the sources
// are compiled: it is a T in size and value, and a plain access to a shared one is a relaxed one, which
// may read what is out of date. Words that are not shared are ordinary memory, of which every load finds
// the last store.
//
// Mutants, besides those of relacy_atomics.h: "function:fetch_add_acq_rel" makes it relaxed, and
// "function:fetch_add_no_acquire", "function:fetch_add_no_release" take one half away; so for fetch_or.
#ifndef EBB_MODEL_CELLS_H
#define EBB_MODEL_CELLS_H

#include "model.h"

#include <type_traits>

namespace model {

// The shared words of the present schedule.
struct Words {
    struct Word {
        const void *at;
        void *shared;
    };
    Word words[48];
    size_t count;
};

inline Words &words()
{
    static Words the_words = {};
    return the_words;
}

// All pointers are read as void *, so their types' aliasing rules do not hold.
template <typename T> T plain_load(const T *at)
{
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <typename T> void plain_store(T *at, T value) { std::memcpy(at, &value, sizeof value); }

template <typename T> class Shared {
public:
    explicit Shared(T *at) : atomic_(plain_load(at))
    {
        alive_($) = 1;
        Words &all = words();
        RL_ASSERT(all.count < sizeof all.words / sizeof all.words[0]);
        all.words[all.count++] = {at, this};
    }
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;

    // Its memory goes: whoever touches it later, or beside this, is in error.
    void die() { alive_($) = 0; }
    rl::atomic<T> &real()
    {
        RL_ASSERT(alive_($) == 1);
        return atomic_;
    }

private:
    rl::atomic<T> atomic_;
    rl::var<int> alive_;
};

// NULL: not shared. Pointers are kept as void *.
template <typename T> Shared<T> *find_shared(const void *at)
{
    const Words &all = words();
    for (size_t i = 0; i < all.count; i++) {
        if (all.words[i].at == at) {
            return static_cast<Shared<T> *>(all.words[i].shared);
        }
    }
    return nullptr;
}

template <typename T> T load_word(const T *at, rl::memory_order order, rl::debug_info_param where)
{
    Shared<T> *shared = find_shared<T>(at);
    return shared != nullptr ? shared->real().load(order, where) : plain_load(at);
}

template <typename T>
void store_word(T *at, T value, rl::memory_order order, rl::debug_info_param where)
{
    Shared<T> *shared = find_shared<T>(at);
    if (shared != nullptr) {
        shared->real().store(value, order, where);
    } else {
        plain_store(at, value);
    }
}

template <typename T> class Cell {
public:
    Cell() = default;
    Cell(T value) : value_(value) {}
    Cell(const Cell &from) : value_(from) {}
    template <typename To> explicit Cell(To *p) : value_(reinterpret_cast<T>(p)) {}
    operator T() const { return load_word(&value_, rl::mo_relaxed, $); }
    template <typename To> explicit operator To *() const
    {
        return reinterpret_cast<To *>(T(*this));
    }
    Cell &operator=(T value)
    {
        store_word(&value_, value, rl::mo_relaxed, $);
        return *this;
    }
    Cell &operator=(const Cell &from) { return *this = T(from); }
    Cell &operator+=(T more) { return *this = T(*this) + more; }
    Cell &operator-=(T less) { return *this = T(*this) - less; }
    Cell &operator|=(T bits) { return *this = T(*this) | bits; }
    Cell &operator&=(T bits) { return *this = T(*this) & bits; }
    Cell operator++(int)
    {
        T before = *this;
        *this = before + 1;
        return before;
    }
    T *place() { return &value_; }
    const T *place() const { return &value_; }

private:
    T value_;
};

// What lies behind the operand of an operation.
template <typename T> struct Operand {
    using Value = T;
    static T *place(T *p) { return p; }
    static const T *place(const T *p) { return p; }
};
template <typename T> struct Operand<Cell<T>> {
    using Value = T;
    static T *place(Cell<T> *p) { return p->place(); }
    static const T *place(const Cell<T> *p) { return p->place(); }
};
template <typename T> struct Operand<T *> {
    using Value = void *;
    static Value *place(T **p) { return (Value *)p; }
    static const Value *place(T *const *p) { return (const Value *)p; }
};

template <typename T> T load_any(const T *p, rl::memory_order order, rl::debug_info_param where)
{
    return (T)load_word(Operand<T>::place(p), order, where);
}

template <typename T, typename V>
void store_any(T *p, V value, rl::memory_order order, rl::debug_info_param where)
{
    using Value = typename Operand<T>::Value;
    store_word(Operand<T>::place(p), (Value)(T)value, order, where);
}

// The inline half of pin and unpin is compiled too, and its word is a whole atomic.
template <typename T>
T load_any(const Atomic<T> *p, rl::memory_order order, rl::debug_info_param where)
{
    return load(p, order, where);
}
template <typename T, typename V>
void store_any(Atomic<T> *p, V value, rl::memory_order order, rl::debug_info_param where)
{
    store(p, value, order, where);
}

enum Change { ADD, SUBTRACT, OR, AND };

template <typename T, typename V>
T change(T *p, V operand, Change how, rl::memory_order order, rl::debug_info_param where)
{
    using Value = typename Operand<T>::Value;
    Value *at = Operand<T>::place(p), value = (Value)operand;
    Shared<Value> *shared = find_shared<Value>(at);
    if (shared != nullptr) {
        rl::atomic<Value> &real = shared->real();
        return how == ADD        ? real.fetch_add(value, order, where)
               : how == SUBTRACT ? real.fetch_sub(value, order, where)
               : how == OR       ? real.fetch_or(value, order, where)
                                 : real.fetch_and(value, order, where);
    }
    Value before = *at;
    *at = how == ADD        ? before + value
          : how == SUBTRACT ? before - value
          : how == OR       ? before | value
                            : before & value;
    return before;
}

template <typename T, typename V>
bool cas_any(T *p, T *expected, V value, rl::memory_order order, rl::debug_info_param where)
{
    using Value = typename Operand<T>::Value;
    Value *at = Operand<T>::place(p), wanted = (Value)*expected;
    Shared<Value> *shared = find_shared<Value>(at);
    if (shared != nullptr) {
        bool done = shared->real().compare_exchange_strong(wanted, (Value)value, order, where,
                                                           rl::mo_relaxed, where);
        *expected = (T)wanted;
        return done;
    }
    Value found = plain_load(at);
    *expected = (T)found;
    if (found == wanted) {
        plain_store(at, (Value)value);
    }
    return found == wanted;
}

} // namespace model

#undef ebbi_load_relaxed
#undef ebbi_load_acquire
#undef ebbi_store_relaxed
#undef ebbi_store_release
#undef ebbi_fetch_add_relaxed
#undef ebbi_fetch_add_acq_rel
#undef ebbi_fetch_sub_relaxed
#undef ebbi_fetch_or_acquire
#undef ebbi_fetch_or_release
#undef ebbi_fetch_or_acq_rel
#undef ebbi_cas_relaxed
#undef ebbi_cas_acquire
#undef ebbi_cas_release

#define EBB_MODEL_BOTH(operation)                                                                  \
    (EBB_MODEL_WEAK(operation "_acq_rel")      ? rl::mo_relaxed                                    \
     : EBB_MODEL_WEAK(operation "_no_acquire") ? rl::mo_release                                    \
     : EBB_MODEL_WEAK(operation "_no_release") ? rl::mo_acquire                                    \
                                               : rl::mo_acq_rel)

#define ebbi_load_relaxed(p) model::load_any((p), rl::mo_relaxed, $)
#define ebbi_load_acquire(p)                                                                       \
    model::load_any((p), EBB_MODEL_ORDER("load_acquire", rl::mo_acquire), $)
#define ebbi_store_relaxed(p, v) model::store_any((p), (v), rl::mo_relaxed, $)
#define ebbi_store_release(p, v)                                                                   \
    model::store_any((p), (v), EBB_MODEL_ORDER("store_release", rl::mo_release), $)
#define ebbi_fetch_add_relaxed(p, v) model::change((p), (v), model::ADD, rl::mo_relaxed, $)
#define ebbi_fetch_add_acq_rel(p, v)                                                               \
    model::change((p), (v), model::ADD, EBB_MODEL_BOTH("fetch_add"), $)
#define ebbi_fetch_sub_relaxed(p, v) model::change((p), (v), model::SUBTRACT, rl::mo_relaxed, $)
#define ebbi_fetch_or_acquire(p, v)                                                                \
    model::change((p), (v), model::OR, EBB_MODEL_ORDER("fetch_or_acquire", rl::mo_acquire), $)
#define ebbi_fetch_or_release(p, v) model::change((p), (v), model::OR, rl::mo_release, $)
#define ebbi_fetch_or_acq_rel(p, v)                                                                \
    model::change((p), (v), model::OR, EBB_MODEL_BOTH("fetch_or"), $)
#define ebbi_fetch_and_relaxed(p, v) model::change((p), (v), model::AND, rl::mo_relaxed, $)
#define ebbi_cas_relaxed(p, expected, v) model::cas_any((p), (expected), (v), rl::mo_relaxed, $)
#define ebbi_cas_acquire(p, expected, v)                                                           \
    model::cas_any((p), (expected), (v), EBB_MODEL_ORDER("cas_acquire", rl::mo_acquire), $)
#define ebbi_cas_release(p, expected, v)                                                           \
    model::cas_any((p), (expected), (v), EBB_MODEL_ORDER("cas_release", rl::mo_release), $)

#endif
