// SPDX-License-Identifier: MIT OR Apache-2.0
// Random runs against a model of the API (tests/random), as libFuzzer chooses them: those of one thread,
// without forks, refusals and filters, which stay with a process.
#include "random/run_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    using namespace random_test;
    std::vector<std::uint8_t> bytes(data, data + size);
    if (bytes.size() < Record::bytes)
        return 0;
    bytes[0] = static_cast<std::uint8_t>((bytes[0] & 0x80) | (bytes[0] & 0x7f) / modes * modes);
    run_stream(bytes.data(), bytes.size());
    return 0;
}
