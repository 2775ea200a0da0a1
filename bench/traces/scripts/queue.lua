-- SPDX-License-Identifier: MIT OR Apache-2.0
-- A queue of orders, each a table with lines, that are priced and dropped.
local state = 1
local function random(limit)
    state = (state * 1103515245 + 12345) % 2147483648
    return state % limit + 1
end

local function order(number)
    local lines = {}
    for i = 1, random(8) do
        lines[i] = { item = "item " .. random(5000), count = random(9), note = {} }
    end
    return { number = number, lines = lines, key = string.format("%08d", number) }
end

local queue, first, total = {}, 1, 0
for number = 1, 80000 do
    queue[number] = order(number)
    if number - first > 3000 + random(500) then
        for _, line in ipairs(queue[first].lines) do
            total = total + line.count * #line.item
        end
        queue[first] = nil
        first = first + 1
    end
end
print(total)
