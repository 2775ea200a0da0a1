#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Keys, certificates, signatures, ciphers, a TLS connection: what is random is checked by its use, the rest printed.
#   openssl.sh FILE SCRATCH
set -eu
file=$1
cd "$2"
for digest in md5 sha1 sha256 sha512 sha3-256 blake2b512; do openssl dgst -r -$digest <"$file"; done
for cipher in aes-256-cbc aes-128-ctr chacha20 camellia-256-cbc; do
    openssl enc -$cipher -pbkdf2 -pass pass:word -S 0011223344556677 -in "$file" -out sealed
    sha256sum <sealed
    openssl enc -d -$cipher -pbkdf2 -pass pass:word -S 0011223344556677 -in sealed | cmp - "$file"
done
for kind in 'rsa:2048' 'ec -pkeyopt ec_paramgen_curve:P-256'; do
    # shellcheck disable=SC2086 # words
    openssl req -x509 -newkey $kind -nodes -keyout key -out certificate -subj /CN=localhost -days 3 2>/dev/null
    openssl verify -CAfile certificate certificate
    openssl x509 -in certificate -noout -subject
    openssl pkcs12 -export -inkey key -in certificate -passout pass:word -out store
    openssl pkcs12 -in store -passin pass:word -nodes | openssl x509 -noout -issuer
    printf 'text' | openssl cms -sign -signer certificate -inkey key -nodetach -outform DER 2>/dev/null |
        openssl cms -verify -inform DER -CAfile certificate -purpose any 2>/dev/null
    rm -f socket
    openssl s_server -unix socket -key key -cert certificate -www -quiet -naccept 1 >/dev/null 2>&1 &
    server=$!
    for _ in $(seq 100); do [ ! -S socket ] || break; sleep 0.1; done
    printf 'GET / HTTP/1.0\r\n\r\n' | timeout 30 openssl s_client -unix socket -CAfile certificate -ign_eof >got 2>&1 || true
    grep -c 'Verify return code: 0' got
    wait $server || true
done
