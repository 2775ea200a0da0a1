// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the C library, which is one file that includes all others.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=CARGO_CFG_MIRI");
    if env::var_os("CARGO_CFG_MIRI").is_some() {
        return; // which runs no C: the crate ebbtide has a stand-in for it
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("c");
    let (source, include) = (root.join("src"), root.join("include"));
    for folder in [&source, &include] {
        assert!(
            folder.is_dir(),
            "{} is missing: it is a symbolic link in the repository, a folder in a package",
            folder.display()
        );
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    println!("cargo:rerun-if-changed=layout.c");
    let os = env::var("CARGO_CFG_TARGET_OS").expect("cargo sets it");
    assert_eq!(os, "linux", "Ebbtide runs on Linux alone");

    let mut build = cc::Build::new();
    build
        .file(source.join("one.c"))
        .file("layout.c")
        .include(&source)
        .include(&include)
        .std("gnu17")
        .opt_level(3)
        .pic(true)
        .flag("-fvisibility=hidden")
        .flag("-ftls-model=initial-exec")
        .flag("-fno-builtin");
    if env::var_os("CARGO_FEATURE_OVERRIDE").is_none() {
        build.define("EBB_NO_OVERRIDE", None);
    } else {
        // Nothing in Rust names malloc of this archive: the linker is to take the file anyway.
        build.link_lib_modifier("+whole-archive");
    }
    build.compile("ebbtide");
    println!("cargo:rustc-link-lib=pthread");
    println!("cargo:include={}", include.display());
}
