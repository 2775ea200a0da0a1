// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb::map<K, V>. Not by itself: include <ebbtide/lockfree.hpp>.
#ifndef EBB_DETAIL_MAP_HPP
#define EBB_DETAIL_MAP_HPP

#include <ebbtide/lockfree.hpp>

namespace ebb {

// A pair of K and V is one block, and its key as the C map knows it is the pair's address. A pair that
// leaves the map is destroyed after the grace period; the map's destructor waits for these (so not
// inside a pin). Hash and Equal are default constructed, may be called by many threads at once and must
// not throw. References that a function gets are valid during the call.
template <typename K, typename V, typename Hash = std::hash<K>, typename Equal = std::equal_to<K>>
class map {
public:
    map() : map_(detail::need(create())) {}
    ~map() { ebb_map_destroy(map_); }
    map(const map &) = delete;
    map &operator=(const map &) = delete;

    // True: inserted; false: the key was there. Then, too, a V that was moved in is moved back, if it can be.
    template <typename U> bool insert(const K &key, U &&value)
    {
        owned_entry fresh(ebb::make<entry>(key, std::forward<U>(value)), ebb::destroy<entry>);
        return put<U>(fresh, ebb_map_insert(map_, name(fresh->key), fresh.get()), value);
    }
    // True: inserted; false: has replaced the value that was there, in one step.
    template <typename U> bool insert_or_assign(const K &key, U &&value)
    {
        owned_entry fresh(ebb::make<entry>(key, std::forward<U>(value)), ebb::destroy<entry>);
        const int result = ebb_map_replace(map_, name(fresh->key), fresh.get(), nullptr);
        if (result == 0)
            (void)fresh.release();
        return put<U>(fresh, result, value);
    }
    // A copy of the value.
    std::optional<V> find(const K &key) const
    {
        std::optional<V> copy;
        (void)visit(key, [&copy](const V &value) { copy.emplace(value); });
        return copy;
    }
    // The value itself; valid as long as the guard lives and is not repinned. NULL: no such key.
    const V *find(const guard &, const K &key) const noexcept
    {
        void *found = nullptr;
        return ebb_map_find(map_, name(key), &found)
                   ? std::addressof(static_cast<entry *>(found)->value)
                   : nullptr;
    }
    // Calls function(const V &) inside a pin. False: no such key.
    template <typename F> bool visit(const K &key, F &&function) const
    {
        const guard pinned;
        const V *value = find(pinned, key);
        if (value != nullptr)
            function(*value);
        return value != nullptr;
    }
    bool contains(const K &key) const noexcept { return ebb_map_find(map_, name(key), nullptr); }
    // Whether this call has removed the key.
    bool erase(const K &key) noexcept { return ebb_map_remove(map_, name(key), nullptr); }
    std::size_t size() const noexcept { return ebb_map_size(map_); }

    // function(const K &, const V &), inside one pin, for every pair; it must not throw.
    template <typename F> void for_each(F &&function) const
    {
        auto *what = std::addressof(function);
        auto call = [](std::uint64_t, void *value, void *context) {
            const entry *pair = static_cast<const entry *>(value);
            (**static_cast<decltype(what) *>(context))(pair->key, pair->value);
            return true;
        };
        ::ebb_map_each(map_, call, &what);
    }

private:
    struct entry {
        template <typename U> entry(const K &k, U &&v) : key(k), value(std::forward<U>(v)) {}
        const K key;
        V value; // constant once the map has it
    };
    using owned_entry = std::unique_ptr<entry, void (*)(entry *) noexcept>;

    static std::uint64_t name(const K &key) noexcept
    {
        return reinterpret_cast<std::uintptr_t>(std::addressof(key));
    }
    static const K &key_of(std::uint64_t name) noexcept
    {
        return *reinterpret_cast<const K *>(static_cast<std::uintptr_t>(name));
    }
    // std::hash may be the number itself: the map wants its upper bits mixed.
    static std::uint64_t hash(std::uint64_t name, void *) noexcept
    {
        std::uint64_t h = static_cast<std::uint64_t>(Hash()(key_of(name)));
        h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
        return (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    }
    static bool equal(std::uint64_t a, std::uint64_t b, void *) noexcept
    {
        return Equal()(key_of(a), key_of(b));
    }
    static void drop(std::uint64_t, void *value, void *) noexcept
    {
        ebb::destroy(static_cast<entry *>(value));
    }
    static ebb_map *create() noexcept
    {
        const ebb_map_options options = {hash, equal, drop, nullptr};
        return ebb_map_create(&options);
    }
    // The map has taken over what it has linked.
    template <typename U>
    static bool put(owned_entry &fresh, int result, std::remove_reference_t<U> &value)
    {
        if (result != 1 && fresh != nullptr)
            detail::give_back<U>(fresh->value, value);
        if (result < 0)
            detail::throw_bad_alloc();
        if (result == 1)
            (void)fresh.release();
        return result == 1;
    }

    ebb_map *map_;
};

} // namespace ebb

#endif
