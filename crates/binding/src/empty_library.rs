//! For build scripts: the library with the C symbols, as a layer over them is linked to it.

use std::path::PathBuf;
use std::process::Command;

/// Options of the linker that name a layer and have it load `libmpi_abi.so.1`. It is linked to an empty library of that name,
/// since its functions are found when they are first called.
///
/// # Panics
/// Without a compiler that makes shared libraries for the target.
pub fn link_options(soname: &str) -> Vec<String> {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Cargo names the linker of the target if it is told of one, as for another architecture.
    let named = ["RUSTC_LINKER", "CC"].into_iter().find_map(std::env::var_os);
    let compiler = named.unwrap_or("cc".into());
    let (library, source) = (folder.join("libmpi_abi.so"), folder.join("empty.c"));
    std::fs::write(&source, "").expect("cargo's folder can be written to");
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libmpi_abi.so.1", "-o"])
        .args([&library, &source])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler:?} makes no shared library");
    vec![
        format!("-Wl,-soname,{soname}"),
        "-Wl,--no-as-needed".to_owned(),
        library.display().to_string(),
        "-Wl,--as-needed,-z,lazy".to_owned(),
    ]
}
