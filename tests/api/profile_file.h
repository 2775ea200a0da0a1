// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads what ebb_profile_write has written: a profile.proto, and no more of it than the library writes. What
// does not hold together is told in a sentence.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace profile_file {

struct Sample {
    std::vector<std::uint64_t> calls; // innermost first
    std::vector<std::uint64_t> values;
    std::map<std::uint64_t, std::uint64_t> labels; // texts by texts
    std::uint64_t alloc_objects() const { return values[0]; }
    std::uint64_t alloc_space() const { return values[1]; }
    std::uint64_t inuse_objects() const { return values[2]; }
    std::uint64_t inuse_space() const { return values[3]; }
    std::uint64_t pinned_space() const { return values[4]; }
};

struct Profile {
    std::vector<Sample> samples;
    std::map<std::uint64_t, std::array<std::uint64_t, 7>> mappings, locations; // by id: the fields
    std::vector<std::string> texts;
    std::vector<std::array<std::uint64_t, 3>> types;
    std::uint64_t period = 0, time = 0;
    std::string wrong; // "": nothing

    std::uint64_t sum(unsigned value) const
    {
        std::uint64_t total = 0;
        for (const Sample &sample : samples)
            total += sample.values[value];
        return total;
    }
    std::uint64_t inuse_objects() const { return sum(2); }
    // "": it has none of that name.
    std::string label(const Sample &sample, const std::string &name) const
    {
        for (const auto &[key, value] : sample.labels)
            if (texts[key] == name)
                return texts[value];
        return "";
    }
};

class Reader {
public:
    Reader(const char *at, std::size_t size) : at_(at), end_(at + size) {}
    bool done() const { return at_ == end_ || bad_; }
    bool bad() const { return bad_; }
    std::uint64_t number()
    {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (at_ == end_)
                break;
            const auto byte = static_cast<unsigned char>(*at_++);
            value |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80)
                return value;
        }
        bad_ = true;
        return 0;
    }
    Reader part()
    {
        const std::uint64_t size = number();
        if (size > static_cast<std::uint64_t>(end_ - at_)) {
            bad_ = true;
            return {at_, 0};
        }
        at_ += size;
        return {at_ - size, size};
    }
    std::string text() const { return {at_, end_}; }

private:
    const char *at_, *end_;
    bool bad_ = false;
};

// Numbers alone, by field.
template <std::size_t count> bool read_numbers(Reader in, std::array<std::uint64_t, count> &fields)
{
    while (!in.done()) {
        const std::uint64_t key = in.number();
        if (key % 8 != 0 || key / 8 >= count)
            return false;
        fields[key / 8] = in.number();
    }
    return !in.bad();
}

inline bool read_label(Reader in, Sample &sample)
{
    std::array<std::uint64_t, 3> fields{};
    return read_numbers(in, fields) && sample.labels.emplace(fields[1], fields[2]).second;
}

inline bool read_sample(Reader in, Sample &sample)
{
    while (!in.done()) {
        const std::uint64_t key = in.number();
        if (key == (3 << 3 | 2)) {
            if (!read_label(in.part(), sample))
                return false;
            continue;
        }
        if (key != (1 << 3) && key != (2 << 3))
            return false;
        (key == (1 << 3) ? sample.calls : sample.values).push_back(in.number());
    }
    return !in.bad() && sample.values.size() == 5;
}

inline bool read_part(Profile &profile, std::uint64_t field, Reader in)
{
    std::array<std::uint64_t, 7> fields{};
    std::array<std::uint64_t, 3> type{};
    switch (field) {
    case 1:
        return read_numbers(in, type) && (profile.types.push_back(type), true);
    case 2:
        return read_sample(in, profile.samples.emplace_back());
    case 3:
        return read_numbers(in, fields) && profile.mappings.emplace(fields[1], fields).second;
    case 4:
        return read_numbers(in, fields) && profile.locations.emplace(fields[1], fields).second;
    case 6:
        profile.texts.push_back(in.text());
        return true;
    default:
        return field == 11;
    }
}

inline std::string find_fault(const Profile &profile)
{
    for (const Sample &sample : profile.samples) {
        for (const std::uint64_t call : sample.calls)
            if (!profile.locations.contains(call))
                return "a call that is no location: " + std::to_string(call);
        if (sample.inuse_objects() > sample.alloc_objects() ||
            sample.inuse_space() > sample.alloc_space())
            return "more in use than allocated";
        for (const auto &[key, value] : sample.labels)
            if (std::max(key, value) >= profile.texts.size() || std::min(key, value) == 0)
                return "a label that is no text";
        if (!profile.label(sample, "lifetime").empty() && sample.inuse_objects() != 0)
            return "freed and in use";
    }
    for (const auto &[id, location] : profile.locations) {
        const auto mapping = profile.mappings.find(location[2]);
        if (location[2] == 0) // of no mapping
            continue;
        if (mapping == profile.mappings.end())
            return "a location in no mapping";
        if (location[3] < mapping->second[2] || location[3] >= mapping->second[3])
            return "a location outside of its mapping";
    }
    for (const auto &[id, mapping] : profile.mappings)
        if (mapping[5] >= profile.texts.size() || mapping[6] >= profile.texts.size())
            return "a name that is no text";
    return profile.types.size() != 5                                 ? "not five types"
           : profile.texts.empty() || !profile.texts.front().empty() ? "the first text"
                                                                     : "";
}

inline Profile read(const std::string &bytes)
{
    Profile profile;
    Reader in(bytes.data(), bytes.size());
    while (!in.done()) {
        const std::uint64_t key = in.number();
        if (key % 8 == 2) {
            if (!read_part(profile, key / 8, in.part()))
                profile.wrong = "field " + std::to_string(key / 8);
        } else {
            (key / 8 == 9 ? profile.time : profile.period) = in.number();
        }
    }
    if (in.bad())
        profile.wrong = "it is cut short";
    if (profile.wrong.empty())
        profile.wrong = find_fault(profile);
    return profile;
}

inline std::string contents(int file)
{
    std::string bytes;
    char buffer[16384];
    for (ssize_t got;
         (got = pread(file, buffer, sizeof buffer, static_cast<off_t>(bytes.size()))) > 0;)
        bytes.append(buffer, static_cast<std::size_t>(got));
    return bytes;
}

} // namespace profile_file
