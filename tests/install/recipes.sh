#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Conan's recipe makes the package and a program uses it, without any remote; vcpkg's is parsed alone. The sources are
# built by the oldest CMake that is promised. Conan and that CMake come by pip.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*" >&2; exit 1; }
logged() { "$@" >"$work/log" 2>&1 </dev/null || { tail -n 40 "$work/log" >&2; fail "$*"; }; }

python3 -m venv "$work/venv"
logged "$work/venv/bin/pip" -q --disable-pip-version-check install 'conan>=2.4,<3' 'cmake==3.16.8'

logged "$root/tools/package" source
mkdir "$work/tree"
tar -C "$work/tree" --strip-components=1 -xf "$root"/build/packages/ebbtide-[0-9].[0-9].[0-9].tar.gz

echo '+ conan create'
export CONAN_HOME=$work/conan
conan=$work/venv/bin/conan
logged "$conan" profile detect
logged "$conan" remote disable '*'
for shared in True False; do
    logged "$conan" create "$work/tree/packaging/conan" -o "ebbtide/*:shared=$shared"
done

echo '+ vcpkg: parsed'
version=$(sed -n 's/^project(ebbtide VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["version"] == sys.argv[2]' \
    "$work/tree/packaging/vcpkg/ebbtide/vcpkg.json" "$version" || fail 'vcpkg.json is of another version'
# Each call of vcpkg's is noted; the rest of the file runs.
cat >"$work/parse.cmake" <<'CMAKE'
foreach(name IN ITEMS cmake_configure cmake_install cmake_config_fixup fixup_pkgconfig install_copyright)
  cmake_language(EVAL CODE "macro(vcpkg_${name})\n message(\"${name} \${ARGN}\")\n endmacro()")
endforeach()
set(CURRENT_PACKAGES_DIR ${WORK}/none)
include(${PORT})
foreach(file IN ITEMS CMakeLists.txt LICENSE-MIT LICENSE-APACHE)
  if(NOT EXISTS ${SOURCE_PATH}/${file})
    message(FATAL_ERROR "${SOURCE_PATH} has no ${file}")
  endif()
endforeach()
CMAKE
logged cmake "-DWORK=$work" "-DPORT=$work/tree/packaging/vcpkg/ebbtide/portfile.cmake" -P "$work/parse.cmake"
[ "$(grep -c '^[a-z_]* ' "$work/log")" -ge 4 ] || fail 'the port calls nothing'

echo '+ CMake 3.16'
CMAKE=$work/venv/bin/cmake "$root/tests/install/from_source.sh"
