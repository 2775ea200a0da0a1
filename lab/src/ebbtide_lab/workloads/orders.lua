-- SPDX-License-Identifier: MIT OR Apache-2.0
-- For wrk: asks for a thousand orders in turn, and ends with one line of JSON.

local ORDERS = 1000
local requests = {}
local at = 0

function init()
   for id = 1, ORDERS do
      requests[id] = wrk.format("GET", "/order?id=" .. id)
   end
end

function request()
   at = at % ORDERS + 1
   return requests[at]
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '{"requests": %d, "s": %.6f, "us": {"mean": %.3f, "p50": %d, "p90": %d, "p99": %d, ' ..
      '"p999": %d, "p9999": %d, "max": %d}, "errors": {"connect": %d, "read": %d, ' ..
      '"write": %d, "status": %d, "timeout": %d}}\n',
      summary.requests, summary.duration / 1e6, latency.mean, latency:percentile(50),
      latency:percentile(90), latency:percentile(99), latency:percentile(99.9),
      latency:percentile(99.99), latency.max, errors.connect, errors.read, errors.write,
      errors.status, errors.timeout))
end
