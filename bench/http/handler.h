// SPDX-License-Identifier: MIT OR Apache-2.0
// What the server serves: GET /order?id=N, or POST /order with {"id": N}, gives the order of that
// number as JSON. There is no database: the rows of an order follow from its number alone.
#ifndef EBB_BENCH_HTTP_HANDLER_H
#define EBB_BENCH_HTTP_HANDLER_H

#include "request.h"

// Before any thread: the JSON library allocates in the phase from now on.
void handler_open(void);

struct exchange; // all that a request has allocated

// Within a phase. The answer holds until handler_finish, which comes before the end of the phase; the
// exchange may be NULL, when memory was refused or the request was.
struct exchange *handler_answer(const struct request *request, struct answer *answer);
void handler_finish(struct exchange *exchange);

// A short answer that needs no memory, for requests that are refused.
struct answer handler_refusal(enum status status);

#endif
