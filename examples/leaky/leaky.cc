// SPDX-License-Identifier: MIT OR Apache-2.0
// A server that misbehaves on purpose: docs/operations.md finds each fault from outside.
//   --leak   a session that times out is not erased
//   --pin    a report frees its rows, and keeps small notes that were allocated between them
//   --churn  a page is copied for each line that is added to it
// Without one of these: all three. It serves itself, --rate requests a second (2000), until --requests or --seconds are
// over. It knows nothing of Ebbtide: LD_PRELOAD=libebbtide.so leaky
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr unsigned requests_a_report = 4000, rows_a_report = 40000, rows_a_note = 20;
constexpr std::size_t notes_kept = 2000, lines_a_page = 40, line_bytes = 50;
constexpr unsigned logs_out = 4; // of so many sessions all but one; that times out

struct options {
    bool leak = false, pin = false, churn = false;
    unsigned long requests = ~0UL, rate = 2000;
    double seconds = 1e9;
};

struct session {
    unsigned long user;
    char basket[1992];
};
struct row {
    char cells[200];
};
struct note {
    unsigned long query;
    char text[192];
};

class server {
public:
    explicit server(const options &asked) : asked_(asked) {}

    void serve(unsigned long request)
    {
        remember_session(request);
        render_page();
        if (request % logs_out != 0)
            log_out(request);
        else
            time_out(request);
        if (request % requests_a_report == 0)
            run_report(request);
    }

    // Whether what is left is what the faults leave, and nothing else.
    bool is_as_asked(unsigned long served) const
    {
        const std::size_t timed_out = (served + logs_out - 1) / logs_out;
        return sessions_.size() == (asked_.leak ? timed_out : 0) &&
               notes_.size() == (asked_.pin && served > 0 ? notes_kept : 0);
    }

private:
    [[gnu::noinline]] void remember_session(unsigned long user)
    {
        auto *fresh = new session;
        fresh->user = user;
        sessions_[user].reset(fresh);
    }
    void log_out(unsigned long user) { sessions_.erase(user); }
    void time_out(unsigned long user)
    {
        if (!asked_.leak)
            sessions_.erase(user);
    }

    [[gnu::noinline]] void read_row(std::vector<std::unique_ptr<row>> &rows)
    {
        auto *fresh = new row;
        fresh->cells[0] = 'r';
        rows.emplace_back(fresh);
    }
    [[gnu::noinline]] void note_slow_query(unsigned long query)
    {
        auto *fresh = new note;
        fresh->query = query;
        notes_.emplace_back(fresh);
        if (notes_.size() > notes_kept)
            notes_.pop_front();
    }
    void run_report(unsigned long request)
    {
        std::vector<std::unique_ptr<row>> rows;
        rows.reserve(rows_a_report);
        for (unsigned i = 0; i < rows_a_report; i++) {
            read_row(rows);
            if (asked_.pin && i % rows_a_note == 0)
                note_slow_query(request);
        }
    }

    [[gnu::noinline]] void render_page()
    {
        std::unique_ptr<char[]> page;
        for (std::size_t bytes = 0; bytes < lines_a_page * line_bytes; bytes += line_bytes) {
            if (asked_.churn) {
                std::unique_ptr<char[]> longer(new char[bytes + line_bytes]);
                if (page != nullptr)
                    std::memcpy(longer.get(), page.get(), bytes);
                page = std::move(longer);
            }
            std::memset((asked_.churn ? page.get() : buffer_) + bytes, '=', line_bytes);
        }
    }

    options asked_;
    std::unordered_map<unsigned long, std::unique_ptr<session>> sessions_;
    std::deque<std::unique_ptr<note>> notes_;
    char buffer_[lines_a_page * line_bytes];
};

// False: an argument is none of ours.
bool read_options(int count, char **arguments, options &asked)
{
    for (int i = 1; i < count; i++) {
        const std::string_view name = arguments[i];
        const char *value = i + 1 < count ? arguments[i + 1] : nullptr;
        if (name == "--leak")
            asked.leak = true;
        else if (name == "--pin")
            asked.pin = true;
        else if (name == "--churn")
            asked.churn = true;
        else if (value == nullptr)
            return false;
        else if (name == "--requests")
            asked.requests = std::strtoul(value, nullptr, 10), i++;
        else if (name == "--rate")
            asked.rate = std::strtoul(value, nullptr, 10), i++;
        else if (name == "--seconds")
            asked.seconds = std::strtod(value, nullptr), i++;
        else
            return false;
    }
    if (!asked.leak && !asked.pin && !asked.churn)
        asked.leak = asked.pin = asked.churn = true;
    return asked.rate > 0;
}

// In a thread of its own, as servers do. Returns how many requests it has served.
void run(server &served, const options &asked, unsigned long &requests)
{
    using clock = std::chrono::steady_clock;
    const auto began = clock::now();
    const std::chrono::duration<double> between(1.0 / static_cast<double>(asked.rate));
    while (requests < asked.requests &&
           clock::now() - began < std::chrono::duration<double>(asked.seconds)) {
        const auto due = static_cast<unsigned long>((clock::now() - began) / between);
        while (requests <= due && requests < asked.requests)
            served.serve(requests++);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

} // namespace

int main(int count, char **arguments)
{
    options asked;
    if (!read_options(count, arguments, asked)) {
        std::fprintf(stderr, "usage: leaky [--leak] [--pin] [--churn] [--requests N] [--seconds N] "
                             "[--rate N]\n");
        return 2;
    }
    std::puts("ready");
    std::fflush(stdout);
    server served(asked);
    unsigned long requests = 0;
    std::thread([&] { run(served, asked, requests); }).join();
    const bool is_well = served.is_as_asked(requests);
    std::printf("%lu requests served: %s\n", requests,
                is_well ? "what is left is as asked" : "WRONG");
    return is_well ? 0 : 1;
}
