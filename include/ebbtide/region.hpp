// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions and domains for C++17: ebb::region, an owning handle that is a std::pmr::memory_resource;
// ebb::scope, what is current for the length of a C++ scope; ebb::domain; ebb::region_allocator<T>;
// promote, which copies out of a region. With C++20 coroutines: ebb::resume_in, ebb::region_promise and
// ebb::scoped_promise. A thin cover of ebbtide/region.h, which says what the operations mean, what they
// cost and who may call them; everything here is O(1) beside that. Where C says ENOMEM, these throw
// std::bad_alloc, where it says EINVAL, std::invalid_argument (or abort where exceptions are off), and
// nothing has changed, but for what was moved into the call.
//
// Memory goes where the object says, whatever is current: a region that has ended, was moved from or
// never was (ebb::heap()) stands for the heap, so no end makes a later allocation fail. Blocks of all of
// them may be freed through any of them, or by ebb_free.
//
// Threads: allocating through one region is for any number of threads; to move, reset, close, release
// or destroy it is for one, while no other uses the object.
#ifndef EBBTIDE_REGION_HPP
#define EBBTIDE_REGION_HPP

#include <cerrno>
#include <chrono>
#include <memory_resource>
#include <scoped_allocator>

#include <ebbtide.hpp>
#include <ebbtide/region.h>

namespace ebb {

namespace detail {

inline ebb_scope enter(ebb_region *region) noexcept
{
    return region != nullptr ? ebb_region_enter(region) : ebb_heap_enter();
}

inline void *heap_alloc(std::size_t bytes, std::size_t align) noexcept
{
    const ebb_scope before = ebb_heap_enter();
    void *p = align <= 16 ? ebb_malloc(bytes) : ebb_aligned_alloc(align, bytes);
    ebb_leave(before);
    return p;
}

inline void *allocate_in(ebb_region *region, std::size_t bytes, std::size_t align)
{
    if (region == nullptr)
        return need(heap_alloc(bytes, align));
    return need(align <= 16 ? ebb_region_alloc(region, bytes)
                            : ebb_region_aligned_alloc(region, align, bytes));
}

template <typename T> void destroy_at_end(void *p) noexcept { ebb::destroy(static_cast<T *>(p)); }

template <typename F> struct end_call {
    explicit end_call(F &&f) : call(std::move(f)) {}
    F call;
};

template <typename F> void call_at_end(void *p) noexcept
{
    auto *end = static_cast<end_call<F> *>(p);
    end->call();
    ebb::destroy(end);
}

struct freer {
    void operator()(void *p) const noexcept { ebb_free(p); }
};

} // namespace detail

// The deleter of make_unique: destructor and ebb_free.
struct destroyer {
    template <typename T> void operator()(T *p) const noexcept { ebb::destroy(p); }
};

template <typename T> class region_allocator;
namespace detail {
template <typename T> class either_allocator;
}

// ---- memory resources ----------------------------------------------------------------------------

// A region that somebody else ends, or, for NULL, the heap. Containers keep its address: it is neither
// copied nor moved. Two are equal when they stand for the same region (without RTTI: when they are the
// same object), although each could free the other's blocks: equal resources let containers take over
// each other's blocks, and a block must not outlive its region in somebody else's container.
class region_ref : public std::pmr::memory_resource {
public:
    explicit region_ref(ebb_region *region) noexcept : region_(region) {}
    region_ref(const region_ref &) = delete;
    region_ref &operator=(const region_ref &) = delete;

    ebb_region *get() const noexcept { return region_; }
    bool is_open() const noexcept { return region_ != nullptr; } // false: the heap

    // An object that the region destroys at its end, newest first; never by hand. A T that uses a pmr
    // or region allocator gets the region's as its last argument, and so do members of pairs and tuples. (As far as the
    // standard library hands it on: not to a pair in a tuple, nor before C++20 to a pair in a pair.)
    // The block of a T without a destructor stays through a close until it is freed. std::invalid_argument
    // where there is a destructor to call and no end at which to call it: in the heap.
    template <typename T, typename... Args> T *make(Args &&...args)
    {
        if constexpr (std::is_trivially_destructible_v<T>) {
            return make_unique<T>(std::forward<Args>(args)...).release();
        } else {
            return make_until_end<T>(detail::destroy_at_end<T>, std::forward<Args>(args)...);
        }
    }

    // An object that its holder destroys, before the region ends; its memory is used again.
    template <typename T, typename... Args>
    std::unique_ptr<T, destroyer> make_unique(Args &&...args)
    {
        static_assert(!std::is_array_v<T>, "for arrays: std::pmr::vector");
        std::unique_ptr<void, detail::freer> block(allocate(sizeof(T), alignof(T)));
        construct(static_cast<std::remove_cv_t<T> *>(block.get()), std::forward<Args>(args)...);
        return std::unique_ptr<T, destroyer>(static_cast<T *>(block.release()));
    }

    // Calls f() at the region's end, in order with the destructors of make. It must not throw. Where this throws, f is not called.
    template <typename F> void at_end(F f)
    {
        make_until_end<detail::end_call<F>>(detail::call_at_end<F>, std::move(f));
    }

    template <typename T = std::byte> region_allocator<T> allocator() const noexcept
    {
        return region_allocator<T>(*this);
    }

    // All zero for the heap.
    ebb_region_stats stats() const noexcept
    {
        ebb_region_stats now{};
        if (region_ != nullptr)
            ebb_region_stats_get(region_, &now);
        return now;
    }
    const char *label() const noexcept
    {
        return region_ != nullptr ? ebb_region_label(region_) : "heap";
    }

protected:
    void *do_allocate(std::size_t bytes, std::size_t align) override
    {
        return detail::allocate_in(region_, bytes, align);
    }
    void do_deallocate(void *p, std::size_t, std::size_t) override { ebb_free(p); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
#if defined(__cpp_rtti)
        const auto *that = dynamic_cast<const region_ref *>(&other);
        return that != nullptr && that->region_ == region_;
#else
        return this == &other;
#endif
    }

    ebb_region *region_;

private:
    // An object that `end` is called for at the region's end.
    template <typename T, typename... Args> T *make_until_end(void (*end)(void *), Args &&...args)
    {
        if (region_ == nullptr)
            detail::throw_invalid("ebb::region_ref: the region has ended");
        auto made = make_unique<T>(std::forward<Args>(args)...);
        if (ebb_region_cleanup(region_, end, detail::address_of(made.get())) != 0) {
            if (errno == EINVAL)
                detail::throw_invalid("ebb::region_ref: the region is closed");
            detail::throw_bad_alloc();
        }
        return made.release();
    }

    template <typename T, typename... Args> void construct(T *p, Args &&...args)
    {
        std::scoped_allocator_adaptor<detail::either_allocator<T>>(
            detail::either_allocator<T>(*this))
            .construct(p, std::forward<Args>(args)...);
    }
};

// The heap as a resource, for ever: for what is to outlive the phase. (Hidden: else a library that uses it could not be
// unloaded. Each has one of its own, all equal as above.)
__attribute__((visibility("hidden"))) inline region_ref &heap() noexcept
{
    alignas(region_ref) static unsigned char memory[sizeof(region_ref)];
    static region_ref *const resource = ::new (static_cast<void *>(memory)) region_ref(nullptr);
    return *resource;
}

// What a region's destructor does. Release, unless plain malloc went there too: then close.
enum class ending { release, close };

struct region_options {
    const char *label = nullptr;
    const region_ref *parent = nullptr; // open, or std::invalid_argument
    std::size_t soft_limit = 0;         // bytes held; 0: none
    std::size_t hard_limit = 0;         // bytes held; 0: none
    ending at_end = ending::release;
    bool closes = false; // never released or reset: see region.h; wants ending::close
};

// Owns a region. pmr containers keep this object's address, not the region's: move it before the first
// of them is made, or use region_allocator, which keeps the region's. Inside moved-from and ended
// regions containers go on in the heap.
class region : public region_ref {
public:
    explicit region(const char *label = nullptr) : region(region_options{label}) {}
    region(const char *label, const region_ref &parent) : region(region_options{label, &parent}) {}
    explicit region(const region_options &options) : region_ref(open(options)), end_(options.at_end)
    {
    }
    // Takes over a handle that ebb_region_open made.
    explicit region(ebb_region *owned, ending at_end = ending::release) noexcept
        : region_ref(owned), end_(at_end)
    {
    }
    region(region &&other) noexcept : region_ref(other.hand_over()), end_(other.end_) {}
    region &operator=(region &&other) noexcept
    {
        if (this != &other) {
            end();
            end_ = other.end_;
            region_ = other.hand_over();
        }
        return *this;
    }
    ~region() override { end(); }

    // Nothing happens to the heap. Of these only close may come while the region is current somewhere.
    void release() noexcept { ebb_region_release(hand_over()); }
    void close() noexcept { ebb_region_close(hand_over()); }
    void reset() noexcept
    {
        if (region_ != nullptr)
            ebb_region_reset(region_);
    }
    // Another thread may become the owner.
    void detach() noexcept
    {
        if (region_ != nullptr)
            ebb_region_detach(region_);
    }
    // The handle, which the caller has to end now.
    ebb_region *hand_over() noexcept { return std::exchange(region_, nullptr); }

private:
    void end() noexcept { end_ == ending::close ? close() : release(); }

    static ebb_region *open(const region_options &options)
    {
        if (options.parent != nullptr && !options.parent->is_open())
            detail::throw_invalid("ebb::region: the parent has ended");
        ebb_region_options plain{};
        plain.label = options.label;
        plain.parent = options.parent != nullptr ? options.parent->get() : nullptr;
        plain.soft_limit = options.soft_limit;
        plain.hard_limit = options.hard_limit;
        plain.closes = options.closes ? 1 : 0;
        ebb_region *opened = ebb_region_open(&plain);
        if (opened == nullptr && errno == EINVAL)
            detail::throw_invalid("ebb::region: the parent is closed");
        return detail::need(opened);
    }

    ending end_;
};

// ---- domains -------------------------------------------------------------------------------------

// A name for memory of plain malloc; copies are the same domain. std::invalid_argument for a name that
// is empty and for n = 0.
class domain {
public:
    explicit domain(const char *label) : domain_(ebb_domain_open(label))
    {
        if (domain_ == nullptr && errno == EINVAL)
            detail::throw_invalid("ebb::domain: a domain needs a name");
        detail::need(domain_);
    }

    // The policies, for the epochs that begin from now on.
    domain &never() { return set(EBB_DOMAIN_NEVER, 0); }
    domain &every_scopes(std::size_t n) { return set(EBB_DOMAIN_SCOPES, n); }
    domain &every_bytes(std::size_t n) { return set(EBB_DOMAIN_BYTES, n); }
    domain &every(std::chrono::milliseconds n)
    {
        return set(EBB_DOMAIN_MS, n.count() > 0 ? static_cast<std::size_t>(n.count()) : 0);
    }
    domain &manual() { return set(EBB_DOMAIN_MANUAL, 0); }

    void advance() const noexcept { ebb_domain_advance(domain_); }
    ebb_domain *get() const noexcept { return domain_; }
    ebb_lifetime_stats stats() const noexcept
    {
        ebb_lifetime_stats now{};
        ebb_domain_stats_get(domain_, &now);
        return now;
    }

private:
    domain &set(ebb_domain_policy policy, std::size_t n)
    {
        if (ebb_domain_set_policy(domain_, policy, n) != 0)
            detail::throw_invalid("ebb::domain: every 0 is no policy");
        return *this;
    }

    ebb_domain *domain_;
};

// ---- what is current -----------------------------------------------------------------------------

// Makes a region, a domain or ebb::heap() current until the end of the C++ scope. For one thread: never
// across a co_await (see scoped_promise), and only as a variable, so that scopes end in reverse order.
// Blocks of a region that was current outlive it only if it is closed, not released (ending::close).
class [[nodiscard]] scope {
public:
    explicit scope(const region_ref &in) noexcept : before_(detail::enter(in.get())) {}
    explicit scope(const domain &in) noexcept : before_(ebb_domain_enter(in.get())) {}
    ~scope() { ebb_leave(before_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    static void *operator new(std::size_t) = delete;
    static void *operator new[](std::size_t) = delete;

private:
    ebb_scope before_;
};

} // namespace ebb

#include <ebbtide/detail/region_allocator.hpp>
#if defined(__cpp_impl_coroutine)
#include <ebbtide/detail/region_coroutine.hpp>
#endif

#endif
