//! Names the library as the ABI wants it, and has it load `libmpi_abi.so.1` (MPI-5.0 §20.2).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for option in binding::empty_library::link_options("libmpifort_abi.so.1") {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
    // The library beside this one, unless the user names another folder in LD_LIBRARY_PATH.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--enable-new-dtags,-rpath,$ORIGIN");
}
