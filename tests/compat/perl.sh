#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# perl: hashes, strings, regular expressions, fork, and threads where perl has them.
. "$(dirname "$0")/lib.bash"
find_program perl perl
prove "$perl" -e 'print scalar(map { "x$_" } 1 .. 1000), "\n"'

program='my %h; for my $i (1 .. 60000) { $h{$i % 7000} .= "value $i "; }
my $n = 0; for my $k (sort keys %h) { $n += length $h{$k}; $n += () = $h{$k} =~ /(\d+)5 /g; }
my $s = ""; $s .= "ab" x 10 for 1 .. 50000; substr($s, 100, 50000) = ""; $n += length $s;
my @tree = map { { id => $_, rest => [1 .. $_ % 40] } } 1 .. 20000; $n += @{$_->{rest}} for @tree; undef @tree;
print "$n\n"; for (1 .. 10) { my $p = fork; if (!$p) { my @a = map { "c$_" } 1 .. 2000; exit(@a == 2000 ? 0 : 1); }
waitpid $p, 0; die "child" if $?; }'
same "$("$perl" -e "$program")" "$(preloaded "$perl" -e "$program")" "result"
threads='use threads; my @t = map { my $i = $_; threads->create(sub { my @a = map { "$i$_" } 1 .. 20000; scalar @a }) } 1 .. 6;
my $n = 0; $n += $_->join for @t; print "$n\n"'
if "$perl" -Mthreads -e 1 2>/dev/null; then
    same 120000 "$(preloaded "$perl" -e "$threads")" "threads"
fi
finish
