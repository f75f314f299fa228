//! For build scripts: the library with the C symbols, as a layer over them is linked to it.

use std::path::PathBuf;
use std::process::Command;

/// Options of the linker that name a layer and have it load `libmpi_abi.so.1`. It is linked to an empty library of that name,
/// since its functions are found when they are first called.
///
/// # Panics
/// Without a compiler that makes shared libraries.
pub fn link_options(soname: &str) -> Vec<String> {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let library = folder.join("libmpi_abi.so");
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libmpi_abi.so.1", "-x", "c", "/dev/null", "-o"])
        .arg(&library)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler:?} makes no shared library");
    vec![
        format!("-Wl,-soname,{soname}"),
        format!("-Wl,--no-as-needed,{}", library.display()),
        "-Wl,--as-needed,-z,lazy".to_owned(),
    ]
}
