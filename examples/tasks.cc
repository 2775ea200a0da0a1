// SPDX-License-Identifier: MIT OR Apache-2.0
// Coroutines on asio whose frames come from a region: a lazy task type in the style of folly's, and a server with it. A
// request has a region; the frames of all coroutines that serve it, and what they build, lie there and end with it. Which
// thread goes on with a coroutine is asio's choice.
//
// Clients in this program send lines "sum 1 2 3" and check the answers.
#define ASIO_STANDALONE
#include <asio.hpp>

#include <ebbtide/region.hpp>

#include <atomic>
#include <charconv>
#include <coroutine>
#include <cstdio>
#include <exception>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace {

constexpr int clients = 8;
constexpr int requests_each = 100;

std::atomic<long> frames_in_regions;
std::atomic<long> frames_elsewhere;

// ---- the task --------------------------------------------------------------------------------------

// Begins when it is awaited, and goes on with its caller when it ends, whether by a value or by an exception. Its frame
// lies in the region that is the coroutine's first parameter (ebb::region_promise).
template <typename T> class [[nodiscard]] task {
public:
    class promise_type : public ebb::region_promise {
        struct to_caller {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept
            {
                return self.promise().caller_;
            }
            void await_resume() noexcept {}
        };

    public:
        template <typename... Rest> explicit promise_type(const ebb::region_ref &region, Rest &&...)
        {
            void *frame = std::coroutine_handle<promise_type>::from_promise(*this).address();
            (ebb_region_of(frame) == region.get() ? frames_in_regions : frames_elsewhere)++;
        }
        task get_return_object()
        {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        to_caller final_suspend() noexcept { return {}; }
        void return_value(T value) { result_ = std::move(value); }
        void unhandled_exception() { result_ = std::current_exception(); }

        T take()
        {
            if (auto *error = std::get_if<std::exception_ptr>(&result_))
                std::rethrow_exception(*error);
            return std::get<T>(std::move(result_));
        }
        void set_caller(std::coroutine_handle<> caller) { caller_ = caller; }

    private:
        std::coroutine_handle<> caller_;
        std::variant<std::monostate, T, std::exception_ptr> result_;
    };

    task(task &&other) noexcept : self_(std::exchange(other.self_, nullptr)) {}
    task &operator=(task &&) = delete;
    ~task()
    {
        if (self_)
            self_.destroy();
    }

    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept
    {
        self_.promise().set_caller(caller);
        return self_;
    }
    T await_resume() { return self_.promise().take(); }

private:
    explicit task(std::coroutine_handle<promise_type> self) : self_(self) {}
    std::coroutine_handle<promise_type> self_;
};

// What nobody awaits: begins at once, and its frame, which is in the heap, goes when it ends.
struct detached {
    struct promise_type {
        detached get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

// ---- asio's operations, awaited --------------------------------------------------------------------

// start: begins an operation of asio with the handler that it is given.
template <typename Start> class operation {
public:
    explicit operation(Start start) : start_(std::move(start)) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self)
    {
        Start start = std::move(start_); // of the frame nothing is touched once it has begun
        start([this, self](asio::error_code error = {}, std::size_t bytes = 0) {
            error_ = error;
            bytes_ = bytes;
            self.resume();
        });
    }
    std::size_t await_resume() const
    {
        if (error_)
            throw asio::system_error(error_);
        return bytes_;
    }

private:
    Start start_;
    asio::error_code error_;
    std::size_t bytes_ = 0;
};

using stream = asio::local::stream_protocol::socket;

auto read_line(stream &socket, std::string &buffer)
{
    return operation([&](auto &&done) {
        asio::async_read_until(socket, asio::dynamic_buffer(buffer), '\n',
                               std::forward<decltype(done)>(done));
    });
}

auto write(stream &socket, std::string_view text)
{
    return operation([&socket, text](auto &&done) {
        asio::async_write(socket, asio::buffer(text), std::forward<decltype(done)>(done));
    });
}

// Goes on in whichever thread is free.
auto hop(asio::io_context &io)
{
    return operation([&io](auto &&done) { asio::post(io, std::forward<decltype(done)>(done)); });
}

// ---- a request -------------------------------------------------------------------------------------

task<long> number(const ebb::region_ref &, asio::io_context &io, std::string_view word)
{
    co_await hop(io);
    long value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
        throw std::invalid_argument("no number");
    co_return value;
}

task<std::pmr::vector<std::string_view>> split(ebb::region_ref &region, std::string_view line)
{
    std::pmr::vector<std::string_view> words(&region);
    while (!line.empty()) {
        std::size_t space = line.find(' ');
        words.push_back(line.substr(0, space));
        line.remove_prefix(space == line.npos ? line.size() : space + 1);
    }
    co_return words;
}

task<std::pmr::string> serve(ebb::region_ref &region, asio::io_context &io, std::string_view line)
{
    std::pmr::string answer(&region);
    auto words = co_await split(region, line);
    try {
        if (words.empty() || words[0] != "sum")
            throw std::invalid_argument("no such request");
        long sum = 0;
        for (std::size_t i = 1; i < words.size(); i++)
            sum += co_await number(region, io, words[i]);
        answer = std::to_string(sum);
    } catch (const std::invalid_argument &error) {
        answer = error.what();
    }
    answer += '\n';
    co_return answer;
}

detached session(asio::io_context &io, stream socket)
{
    std::string buffer;
    try {
        for (;;) {
            std::size_t length = co_await read_line(socket, buffer);
            ebb::region request(
                "request"); // released at the end of this turn, the frames of its tasks before it
            auto answer =
                co_await serve(request, io, std::string_view(buffer).substr(0, length - 1));
            co_await write(socket, answer);
            buffer.erase(0, length);
        }
    } catch (const asio::system_error &) { // the client has gone
    }
}

// ---- the clients -----------------------------------------------------------------------------------

bool ask(stream &socket, const std::string &line, const std::string &expected)
{
    std::string answer;
    asio::write(socket, asio::buffer(line + "\n"));
    asio::read_until(socket, asio::dynamic_buffer(answer), '\n');
    return answer == expected + "\n";
}

bool run_client(stream &socket)
{
    bool is_right = true;
    for (int i = 0; i < requests_each; i++) {
        is_right &= ask(socket, "sum " + std::to_string(i) + " 2 30", std::to_string(i + 32));
        is_right &= ask(socket, "sum 1 x 3", "no number");
    }
    is_right &= ask(socket, "sum", "0") && ask(socket, "", "no such request");
    socket.close();
    return is_right;
}

ebb_lifetime_stats of_requests()
{
    ebb_lifetime_stats line{};
    ebb_lifetimes_get(&line, 1); // the program has one label
    return line;
}

} // namespace

int main()
{
    asio::io_context io;
    std::vector<stream> ends;
    for (int i = 0; i < clients; i++) {
        stream here(io), there(io);
        asio::local::connect_pair(here, there);
        session(io, std::move(here));
        ends.push_back(std::move(there));
    }
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (stream &end : ends)
        threads.emplace_back([&] { right += run_client(end) ? 1 : 0; });
    for (int i = 0; i < 2; i++)
        threads.emplace_back([&] { io.run(); }); // until all clients have gone
    for (std::thread &thread : threads)
        thread.join();

    ebb_lifetime_stats requests = of_requests();
    constexpr unsigned long served = clients * (2 * requests_each + 2);
    std::printf("%d of %d clients were answered rightly; %lu requests, %ld frames in their "
                "regions, %ld elsewhere; %zu bytes "
                "left\n",
                right.load(), clients, static_cast<unsigned long>(requests.opened),
                frames_in_regions.load(), frames_elsewhere.load(), requests.live_bytes);
    bool is_well = right == clients && requests.opened == served && requests.released == served &&
                   requests.open == 0 && requests.live_bytes == 0 &&
                   frames_in_regions >= static_cast<long>(served);
    return is_well ? 0 : 1;
}
