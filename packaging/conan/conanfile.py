# SPDX-License-Identifier: MIT OR Apache-2.0
"""Conan 2: `conan create packaging/conan` in an unpacked release or a checkout. Nothing is fetched."""

import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rm, rmdir

SOURCES = ("CMakeLists.txt", "LICENSE-*", "cmake/*", "packaging/*", "include/*", "src/*", "lockfree/*", "wait/*", "compat/*", "docs/man/*")


class Ebbtide(ConanFile):
    name = "ebbtide"
    license = "MIT OR Apache-2.0"
    description = "A malloc for Linux that returns unused memory, with regions and epoch-based reclamation"
    topics = ("allocator", "malloc", "epoch", "regions")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": True}

    @property
    def _root(self):
        return Path(self.recipe_folder).parents[1]

    def set_version(self):
        lists = (self._root / "CMakeLists.txt").read_text()
        self.version = re.search(r"^project\(ebbtide VERSION ([\d.]+)", lists, re.MULTILINE).group(1)

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self._root, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("Ebbtide is for Linux on x86-64 and 64-bit Arm")

    def configure(self):
        self.settings.rm_safe("compiler.libcxx")
        self.settings.rm_safe("compiler.cppstd")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["EBBTIDE_TESTS"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        for folder in ("lib/cmake", "lib/pkgconfig"):  # Conan writes its own
            rmdir(self, Path(self.package_folder) / folder)
        if not self.options.shared:
            for library in ("libebbtide", "libebbtide_compat"):
                rm(self, f"{library}.so*", Path(self.package_folder) / "lib")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "Ebbtide")
        parts = {"ebbtide" if self.options.shared else "ebbtide_static": ("ebbtide", "ebbtide"),
                 "ebbtide_core": ("ebbtide_core", "ebbtide-core"),
                 "ebbtide_lockfree": ("ebbtide_lockfree", "ebbtide-lockfree"),
                 "ebbtide_compat" if self.options.shared else "ebbtide_compat_static": ("ebbtide_compat", "ebbtide-compat")}
        for target, (library, package) in parts.items():
            part = self.cpp_info.components[target]
            part.libs = [library]
            part.set_property("cmake_target_name", f"Ebbtide::{target}")
            part.set_property("pkg_config_name", package)
            part.system_libs = ["pthread", "dl"]
            if library == "ebbtide_compat":
                part.includedirs = ["include", "include/ebbtide/compat"]
