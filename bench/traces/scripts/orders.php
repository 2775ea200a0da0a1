<?php
// SPDX-License-Identifier: MIT OR Apache-2.0
// Orders as objects, kept by customer, sent through serialize and JSON.
class Order
{
    public array $lines = [];
    public function __construct(public int $number, public string $customer)
    {
    }
}

$rows = json_decode(file_get_contents($argv[1]), true);
$length = 0;
for ($round = 0; $round < 6; $round++) {
    $kept = [];
    foreach ($rows as $number => $row) {
        $order = new Order($number, $row['name']);
        foreach ($row['tags'] as $tag) {
            $order->lines[] = ['tag' => $tag, 'text' => str_repeat($tag, 3 + $number % 5)];
        }
        $kept[$row['name']][] = $order;
    }
    $length += strlen(serialize($kept)) + strlen(json_encode($kept));
}
echo count($kept), ' ', $length, "\n";
