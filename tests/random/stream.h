// SPDX-License-Identifier: MIT OR Apache-2.0
// The input of a run: records of eight bytes, one operation each, so that a minimiser that drops
// eight bytes drops one operation. The first record says what kind of run it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace random_test {

struct Record {
    static constexpr std::size_t bytes = 8;
    std::uint8_t at[bytes];

    std::uint8_t op() const { return at[0]; }
    std::size_t pick() const { return at[1] | static_cast<std::size_t>(at[2]) << 8; }
    std::uint8_t x() const { return at[6]; }
    std::uint8_t y() const { return at[7]; }
    std::size_t number() const { return at[4] | static_cast<std::size_t>(at[5]) << 8; }
    std::size_t size(unsigned profile) const;
};

class Stream {
public:
    Stream(const std::uint8_t *data, std::size_t size) : at_(data), end_(data + size) {}
    bool next(Record &record)
    {
        if (left() == 0)
            return false;
        std::memcpy(record.at, at_, Record::bytes);
        at_ += Record::bytes;
        return true;
    }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_) / Record::bytes; }
    Stream peek(std::size_t records) const
    {
        return Stream(at_, std::min(records, left()) * Record::bytes);
    }
    Stream take(std::size_t records)
    {
        const Stream taken = peek(records);
        at_ = taken.end_;
        return taken;
    }

private:
    const std::uint8_t *at_, *end_;
};

// Sizes at which things change: units, classes, pages, sheets, the end of the small ones.
inline constexpr std::size_t steps[] = {
    16,    32,    48,    100,   1000,   4000,   4096,   5000,   8192,   10000,  16000,
    20000, 30000, 32768, 32769, 40000,  50000,  60000,  65520,  65536,  100000, 120000,
    1,     0,     64,    130,   131056, 131072, 131073, 140000, 300000, 1 << 20};
inline constexpr std::size_t holes[] = {32, 30000, 60000, 40000};

inline std::size_t Record::size(unsigned profile) const
{
    const std::size_t kind = at[3], value = number();
    switch (profile % 8) {
    case 0:
        return steps[kind % std::size(steps)];
    case 1:
        return value % 600;
    case 2:
        return (value << (kind % 21)) >> 16;
    case 3:
        return 16384 + value * 2 % 114688;
    case 4:
        return holes[kind % std::size(holes)];
    case 5: // what the others choose, by turns
        return size(kind / 51 % 5 == 4 ? 7 : static_cast<unsigned>(kind / 51 % 5));
    case 6:
        return kind < 200 ? value % 1200 : 16384 + value * 2 % 114688;
    default:
        return kind < 128 ? (value << (kind % 21)) >> 16 : 65536 + value * 15;
    }
}

inline std::uint64_t next_random(std::uint64_t &state)
{
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t value = state;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9U;
    value = (value ^ value >> 27) * 0x94d049bb133111ebU;
    return value ^ value >> 31;
}

inline std::vector<std::uint8_t> make_stream(std::uint64_t seed, unsigned mode, std::size_t records)
{
    std::vector<std::uint8_t> bytes(records * Record::bytes);
    std::uint64_t state = seed * 0x2545f4914f6cdd1dU + mode;
    for (std::size_t i = 0; i < bytes.size(); i += Record::bytes) {
        const std::uint64_t value = next_random(state);
        std::memcpy(&bytes[i], &value, Record::bytes);
    }
    bytes[0] = static_cast<std::uint8_t>(mode);
    return bytes;
}

} // namespace random_test
