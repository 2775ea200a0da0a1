# SPDX-License-Identifier: MIT OR Apache-2.0
# Word pairs of a text, as a hash of hashes, sorted and joined.
use strict;
use warnings;

my %after;
open my $text, '<', $ARGV[0] or die "$ARGV[0]: $!";
while (my $line = <$text>) {
    my @words = map { lc } $line =~ /[A-Za-z]+/g;
    push @{ $after{ $words[$_] }{ $words[ $_ + 1 ] } }, $. for 0 .. $#words - 1;
}
my $longest = '';
for my $word (sort keys %after) {
    my $joined = join ' ', map { "$_:" . scalar @{ $after{$word}{$_} } } sort keys %{ $after{$word} };
    $longest = $joined if length $joined > length $longest;
}
print scalar(keys %after), ' ', length $longest, "\n";
