// SPDX-License-Identifier: MIT OR Apache-2.0
// Input of the compile workload: enough of the standard library, instantiated for
// enough types, that the compiler has a few seconds of work.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

template <int N> struct Key {
    int value[N];
    bool operator<(const Key &other) const
    {
        return std::lexicographical_compare(value, value + N, other.value, other.value + N);
    }
};

template <int N> long exercise(const std::string &text)
{
    std::map<Key<N>, std::vector<std::string>> table;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        Key<N> key{};
        for (int i = 0; i < N; i++)
            key.value[i] = static_cast<int>(word.size()) * (i + 1);
        table[key].push_back(word);
    }
    std::vector<std::tuple<int, std::string, double>> rows;
    for (const auto &[key, list] : table)
        for (const auto &word : list)
            rows.emplace_back(key.value[0], word, N * 0.5);
    std::stable_sort(rows.begin(), rows.end());
    std::function<long(long, const std::tuple<int, std::string, double> &)> add =
        [](long sum, const auto &row) { return sum + std::get<0>(row); };
    return std::accumulate(rows.begin(), rows.end(), 0L, add);
}

template <int... N> long exercise_all(const std::string &text, std::integer_sequence<int, N...>)
{
    return (exercise<N + 1>(text) + ...);
}

} // namespace

int main()
{
    const std::string text = "the quick brown fox jumps over the lazy dog";
    std::cout << exercise_all(text, std::make_integer_sequence<int, 6>()) << '\n';
    return std::regex_search(text, std::regex("fox|dog")) ? 0 : 1;
}
