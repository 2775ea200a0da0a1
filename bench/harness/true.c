// SPDX-License-Identifier: MIT OR Apache-2.0
// The smallest program: what it costs to start and to exit is the allocator's
// start-up, nothing else.
int main(void) { return 0; }
