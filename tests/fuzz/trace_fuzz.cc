// SPDX-License-Identifier: MIT OR Apache-2.0
// Hostile recordings: the reader and the walk over all events, of bytes as they come, or of blocks around them whose
// checks and offsets hold. What is refused ends by fail(), whose exit is a jump here; memory is given back behind it.
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_set>

extern "C" {
#include "trace/tool/walk.h"

// The tool's own calls by these names, see fuzz.cmake.
void *fuzz_malloc(std::size_t bytes);
void *fuzz_calloc(std::size_t count, std::size_t size);
void *fuzz_realloc(void *p, std::size_t bytes);
void fuzz_free(void *p);
[[noreturn]] void fuzz_exit(int status);
}

namespace {

std::unordered_set<void *> blocks;
std::jmp_buf refused;
recording file;
walk of_file;
int descriptor = -1;

void *keep(void *p)
{
    blocks.insert(p);
    return p;
}

template <class T> void append(std::string &bytes, const T &value)
{
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
}

std::string head(std::string text)
{
    std::string bytes = TRACE_MAGIC;
    append(bytes, std::uint32_t{TRACE_VERSION});
    append(bytes, static_cast<std::uint32_t>(text.size()));
    return bytes + text;
}

// Each block is a byte for its thread, a byte for its length, and as many bytes of events behind a mark.
std::string built(const std::uint8_t *data, std::size_t size)
{
    std::uint64_t offsets[4] = {}, turn = 0;
    std::string bytes = head("first_thread=1\n");
    while (size >= 2) {
        std::uint32_t thread = 1 + data[0] % 4;
        std::size_t length = data[1] < size - 2 ? data[1] : size - 2;
        std::string events = {static_cast<char>(TRACE_MARK << TRACE_SMALL_BITS),
                              static_cast<char>(turn++ % 128), 0, 0};
        events.append(reinterpret_cast<const char *>(data) + 2, length);
        const auto count = static_cast<std::uint32_t>(events.size());
        trace_block block = {TRACE_BLOCK_MAGIC, thread, offsets[thread - 1], count, count, 0, 0};
        block.check = block_check(block, events.data());
        append(bytes, block);
        bytes += events;
        offsets[thread - 1] += count;
        data += length + 2;
        size -= length + 2;
    }
    return bytes;
}

void put(const std::string &bytes)
{
    if (ftruncate(descriptor, 0) != 0 ||
        pwrite(descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        std::abort();
}

void read_all()
{
    static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    step one;
    file = {};
    if (setjmp(refused) != 0)
        return;
    recording_open(&file, path.c_str());
    walk_open(&of_file, &file);
    while (walk_next(&of_file, &one)) {
    }
    walk_close(&of_file);
}

} // namespace

void *fuzz_malloc(std::size_t bytes) { return keep(std::malloc(bytes)); }
void *fuzz_calloc(std::size_t count, std::size_t size) { return keep(std::calloc(count, size)); }

void *fuzz_realloc(void *p, std::size_t bytes)
{
    blocks.erase(p);
    return keep(std::realloc(p, bytes));
}

void fuzz_free(void *p)
{
    blocks.erase(p);
    std::free(p);
}

void fuzz_exit(int) { std::longjmp(refused, 1); }

extern "C" int LLVMFuzzerInitialize(int *, char ***)
{
    stderr = std::fopen("/dev/null", "w"); // a line for each refusal
    descriptor = memfd_create("recording", 0);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size <= sizeof(trace_start)) // it leaves the file open
        return 0;
    put((data[0] & 1) != 0 ? built(data + 1, size - 1)
                           : std::string(reinterpret_cast<const char *>(data) + 1, size - 1));
    read_all();
    if (file.data != nullptr)
        munmap(const_cast<unsigned char *>(file.data), file.bytes);
    for (void *p : blocks)
        std::free(p);
    blocks.clear();
    return 0;
}
