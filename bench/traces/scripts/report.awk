# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts pairs of words, and keeps the lines that each word was in.
{
    for (i = 1; i < NF; i++) {
        pairs[tolower($i) " " tolower($(i + 1))]++
        lines[$i] = substr(lines[$i] "," NR, 1, 200)
    }
}
END {
    for (pair in pairs)
        if (pairs[pair] > most) most = pairs[pair]
    print length(pairs), length(lines), most
}
