#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Each package is made, put into an empty root, used there by a program, and removed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS DESTDIR LD_LIBRARY_PATH LD_PRELOAD PYTHONPATH
packages=$root/build/packages
programs=$root/tests/install

fail() { echo "failed: $*" >&2; exit 1; }
logged() { "$@" >"$work/log" 2>&1 </dev/null || { cat "$work/log" >&2; fail "$*"; }; }
one() { # the only file of this name
    set -- "$packages"/$1
    [ $# = 1 ] && [ -e "$1" ] || fail "not one file: $*"
    echo "$1"
}
proved() { # PRELOAD: /bin/true has its malloc from there
    LD_DEBUG=bindings LD_PRELOAD=$1 /bin/true 2>"$work/bindings" || fail "/bin/true under $1"
    grep -q "to $1 .*\`malloc'" "$work/bindings" || fail "/bin/true does not take malloc from $1"
}

command -v aarch64-linux-gnu-gcc >/dev/null || { echo 'no cross compiler here'; exit 77; }
rm -rf "$packages"
logged "$root/tools/package" all
(cd "$packages" && logged sha256sum -c SHA256SUMS)

echo '+ tarballs'
for architecture in x86_64 aarch64; do
    mkdir "$work/$architecture"
    tar -C "$work/$architecture" -xf "$(one "ebbtide-*-$architecture-linux-gnu.tar.gz")"
    prefix=$(echo "$work/$architecture"/ebbtide-*)
    logged "$root/tools/check_library" --glibc 2.28 "$prefix/lib/libebbtide.so"
    ! "$root/tools/check_library" --glibc 2.2.4 "$prefix/lib/libebbtide.so" 2>/dev/null || fail 'every glibc passes'
    compiler=$architecture-linux-gnu-gcc
    emulator=()
    [ "$architecture" = "$(uname -m)" ] || emulator=("qemu-$architecture" -L "/usr/$architecture-linux-gnu" -E "LD_LIBRARY_PATH=$prefix/lib")
    for use in 'ebbtide program.c' 'ebbtide-lockfree blocks.c' 'ebbtide-compat calls.c'; do
        read -r package source <<<"$use"
        # shellcheck disable=SC2046
        logged $compiler "$programs/$source" -o "$work/program" \
            $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs $package) "-Wl,-rpath,$prefix/lib"
        logged "${emulator[@]}" "$work/program"
    done
done
proved "$(echo "$work"/x86_64/ebbtide-*/lib/libebbtide.so)"

echo '+ wheel'
python3 -m venv "$work/venv"
size_before=$(du -sk "$work/venv" | cut -f1)
logged "$work/venv/bin/pip" --disable-pip-version-check install --no-compile "$(one '*.whl')"
size=$(($(du -sk "$work/venv" | cut -f1) - size_before))
[ $size -le 25600 ] || fail "the tool takes $size KiB"
for heavy in numpy matplotlib; do
    ! "$work/venv/bin/python" -c "import $heavy" 2>/dev/null || fail "the wheel brings $heavy"
done
# ebb COMMAND...: run, status, doctor and profile by this ebb.
try_ebb() {
    cd "$work"
    [ "$("$@" run -- python3 -c 'print(6 * 7)' 2>"$work/said")" = 42 ] || fail "$* run: $(cat "$work/said")"
    grep -q '^ebb: malloc is ebbtide' "$work/said" || fail "$* run proves nothing: $(cat "$work/said")"
    "$@" run -- sleep 60 2>"$work/said" &
    local ebb=$! tries=0
    while server=$(pgrep -P $ebb -x sleep) || true; [ -z "$server" ] || ! grep -q '^ebb: malloc' "$work/said"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || fail "$* run starts no sleep"
        sleep 0.05
    done
    logged "$@" status --json "$server"
    logged "$@" doctor --json --pid "$server"
    kill "$server"
    server=
    wait $ebb || true
    seq 100000 >"$work/numbers"
    EBB_PROFILE=4096,$work/heap.pb "$@" run -- sort -o "$work/sorted" "$work/numbers" >"$work/said" 2>&1 ||
        fail "$* run with a profile: $(cat "$work/said")"
    logged "$@" profile --view allocated --html "$work/heap.html" "$work/heap.pb"
    grep -q '</html>' "$work/heap.html" || fail "$* profile writes no page"
    logged "$@" profile --view allocated "$work/heap.pb"
    grep -q 'sort+0x' "$work/log" || fail "$* profile does not name sort: $(cat "$work/log")"
    ! "$@" bench >"$work/log" 2>&1 || fail "$* bench works without a checkout"
    grep -q 'needs a checkout' "$work/log" || fail "$* bench says: $(cat "$work/log")"
}
try_ebb "$work/venv/bin/ebb"

echo '+ deb'
debs=("$(one 'libebbtide0_*.deb')" "$(one 'libebbtide-dev_*.deb')" "$(one 'ebbtide_*.deb')")
clean=$work/clean
mkdir -p "$clean/var/lib/dpkg" && touch "$clean/var/lib/dpkg/status"
if [ "$(id -u)" = 0 ]; then # what they depend on is in the root around this one
    logged dpkg --root="$clean" --force-depends --install "${debs[@]}"
else
    for deb in "${debs[@]}"; do dpkg-deb -x "$deb" "$clean"; done
fi
libraries=$(dirname "$(find "$clean" -name 'libebbtide.so.0')")
for options in '' -static; do
    # shellcheck disable=SC2086
    logged gcc $options "$programs/program.c" -o "$work/program" "-I$clean/usr/include" "-L$libraries" -lebbtide "-Wl,-rpath,$libraries"
    logged "$work/program"
done
proved "$libraries/libebbtide.so.0"
logged gcc "$programs/calls.c" -o "$work/program" "-I$clean/usr/include" "-I$clean/usr/include/ebbtide/compat" "-L$libraries" \
    -lebbtide_compat -lebbtide "-Wl,-rpath,$libraries"
logged "$work/program"
try_ebb "$work/venv/bin/python" "$clean/usr/bin/ebb"
if [ "$(id -u)" = 0 ]; then
    logged dpkg --root="$clean" --purge ebbtide libebbtide-dev libebbtide0
    left=$(find "$clean" -path "$clean/var" -prune -o -type f ! -name '*.pyc' -print)
    [ -z "$left" ] || fail "left behind: $left"
fi

logged "$work/venv/bin/pip" uninstall -y ebbtide
[ ! -e "$work/venv/bin/ebb" ] || fail 'the wheel is gone, ebb is not'

echo '+ image'
python3 - "$(one 'ebbtide-*-oci')" "$work/layer" <<'PYTHON'
import hashlib, json, pathlib, sys, tarfile
folder, out = map(pathlib.Path, sys.argv[1:])
def blob(reference):
    path = folder / "blobs/sha256" / reference["digest"].removeprefix("sha256:")
    content = path.read_bytes()
    assert len(content) == reference["size"] and hashlib.sha256(content).hexdigest() == path.name, path
    return path
manifest = json.loads(blob(json.loads((folder / "index.json").read_text())["manifests"][0]).read_bytes())
json.loads(blob(manifest["config"]).read_bytes())
for layer in manifest["layers"]:
    tarfile.open(blob(layer)).extractall(out)
PYTHON
proved "$work/layer/usr/lib/ebbtide/libebbtide.so"
[ -r "$work/layer/usr/lib/ebbtide/libebbtide_compat.so" ] || fail 'the image lacks libebbtide_compat.so'

echo '+ sources, bill of materials'
tar -C "$work" -xf "$(one 'ebbtide-[0-9].[0-9].[0-9].tar.gz')"
[ -f "$(echo "$work"/ebbtide-[0-9]*/src/one.c)" ] || fail 'the sources lack one.c'
[ -f "$(echo "$work"/ebbtide-[0-9]*/examples/leaky/leaky.cc)" ] || fail 'the sources lack the examples that docs walk through'
python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); names = {p["name"] for p in d["packages"]}; assert {"libebbtide", "click"} <= names' "$(one '*.spdx.json')"
echo passed
