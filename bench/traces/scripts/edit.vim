" SPDX-License-Identifier: MIT OR Apache-2.0
" Sorts, substitutes and undoes in the text at hand, then leaves it as it was.
set nomore noswapfile undolevels=1000
for s:round in range(3)
    silent %s/\<the\>/THE/g
    silent g/license/normal! A (license)
    silent %sort
    silent %s/\v(\w+) (\w+)/\2 \1/e
    silent normal! 3u
endfor
let s:words = {}
for s:line in getline(1, 3000)
    for s:word in split(s:line)
        let s:words[s:word] = add(get(s:words, s:word, []), len(s:line))
    endfor
endfor
qall!
