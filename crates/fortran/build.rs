//! Names the library as the ABI wants it, and has it load `libmpi_abi.so.1` (MPI-5.0 §20.2).

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpifort_abi.so.1");
    // The library works with any libmpi_abi.so.1, so it is linked to an empty one. Symbols are found when first called.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let library = folder.join("libmpi_abi.so");
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libmpi_abi.so.1", "-x", "c", "/dev/null", "-o"])
        .arg(&library)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler:?} makes no shared library");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--no-as-needed,{}", library.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed,-z,lazy");
    // The library beside this one, unless the user names another folder in LD_LIBRARY_PATH.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--enable-new-dtags,-rpath,$ORIGIN");
}
