#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The compiler itself runs preloaded, and so does the C++ program that it makes.
. "$(dirname "$0")/lib.bash"
find_program cxx g++
cat >"$work/program.cc" <<'P'
#include <algorithm>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static long work(int seed)
{
    std::map<int, std::string> tree;
    std::unordered_map<std::string, std::vector<int>> table;
    std::list<std::unique_ptr<std::string>> list;
    for (int i = 0; i < 20000; i++) {
        const int key = static_cast<int>((static_cast<unsigned>(i) * 7919U + static_cast<unsigned>(seed)) % 5000U);
        tree[key] += "x";
        table["key" + std::to_string(key)].push_back(i);
        list.push_back(std::make_unique<std::string>(static_cast<std::size_t>(i % 300), 'y'));
        if (i % 3 == 0)
            list.pop_front();
    }
    long sum = static_cast<long>(list.size());
    for (const auto &entry : tree)
        sum += static_cast<long>(entry.second.size());
    for (const auto &entry : table)
        sum += static_cast<long>(entry.second.size());
    return sum;
}

int main()
{
    std::vector<std::future<long>> results;
    for (int i = 0; i < 8; i++)
        results.push_back(std::async(std::launch::async, work, i));
    long sum = 0;
    for (auto &result : results)
        sum += result.get();
    std::shared_ptr<int> shared = std::make_shared<int>(1);
    std::ostringstream text;
    text << std::string(2000, 'a').replace(5, 1900, "b") << shared.use_count();
    try {
        throw std::runtime_error(std::string(1000, 'e'));
    } catch (const std::exception &error) {
        sum += static_cast<long>(std::string(error.what()).size());
    }
    std::cout << sum << " " << text.str() << "\n";
}
P
prove "$cxx" --version
preloaded "$cxx" -std=c++17 -O2 -pthread "$work/program.cc" -o "$work/program" || fail "the compiler failed"
"$cxx" -std=c++17 -O2 -pthread "$work/program.cc" -o "$work/plain"
cmp "$work/program" "$work/plain" || fail "the compiler made another program than without the library"
prove "$work/program"
same "$("$work/plain")" "$(preloaded "$work/program")" "output"
if clang=$(command -v clang++); then
    preloaded "$clang" -std=c++17 -O1 -pthread "$work/program.cc" -o "$work/clang-program" || fail "clang++ failed"
    same "$("$work/plain")" "$(preloaded "$work/clang-program")" "output of the program by clang++"
fi
finish
