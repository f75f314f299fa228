//! The library, loaded when it is there, and the providers that it offers.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;
use std::sync::OnceLock;

use super::layout::{
    CONTEXT, CONTEXT2, EP_RDM, FabricAttr, FabricFid, Info, MR_MODES, MSG, ORDER_SAS, Opaque, RECV,
    RM_ENABLED, SEND, THREAD_DOMAIN, VERSION,
};

/// The functions that the library exports. It stays loaded.
#[derive(Debug)]
pub(super) struct FabricLibrary {
    get_info: GetInfo,
    free_info: FreeInfo,
    copy_info: CopyInfo,
    pub(super) fabric: OpenFabric,
    error_text: ErrorText,
}

/// `fi_getinfo`.
type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
/// `fi_freeinfo`.
type FreeInfo = unsafe extern "C" fn(*mut Info);
/// `fi_dupinfo`.
type CopyInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
/// `fi_fabric`.
type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut FabricFid, Opaque) -> c_int;
/// `fi_strerror`.
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;
/// `fi_version`.
type Version = unsafe extern "C" fn() -> u32;

impl FabricLibrary {
    /// Returns the library, loaded at the first call.
    ///
    /// # Errors
    /// It is missing or too old.
    pub fn get() -> Result<&'static Self, String> {
        static LIBRARY: OnceLock<Result<FabricLibrary, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, String> {
        // SAFETY: the name is a C string. The library's constructors run as in a program that is linked to it.
        let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(format!(
                "{} is not here: install libfabric {MINIMUM} or later (libfabric1 on Debian)",
                NAME.to_string_lossy()
            ));
        }
        let too_old = |name: &CStr| {
            format!(
                "{} lacks {}: install libfabric {MINIMUM} or later",
                NAME.to_string_lossy(),
                name.to_string_lossy()
            )
        };
        // The version of a symbol fixes the layout of its arguments, whatever the library's own version is.
        let symbol = |name: &CStr, version: &CStr| {
            // SAFETY: the library stays loaded, and both names are C strings.
            let found = unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) };
            if found.is_null() { Err(too_old(name)) } else { Ok(found) }
        };
        let version = symbol(c"fi_version", c"FABRIC_1.0")?;
        // SAFETY: this is the declaration of `fi_version` (rdma/fabric.h).
        let version = unsafe { mem::transmute::<*mut c_void, Version>(version) };
        // SAFETY: the function takes nothing and only returns a number.
        if unsafe { version() } < VERSION {
            return Err(too_old(c"the interface of this version"));
        }
        let get_info = symbol(c"fi_getinfo", c"FABRIC_1.3")?;
        let free_info = symbol(c"fi_freeinfo", c"FABRIC_1.3")?;
        let copy_info = symbol(c"fi_dupinfo", c"FABRIC_1.3")?;
        let fabric = symbol(c"fi_fabric", c"FABRIC_1.1")?;
        let error_text = symbol(c"fi_strerror", c"FABRIC_1.0")?;
        // SAFETY: the types of the fields are the declarations of these functions, in these versions.
        Ok(unsafe {
            Self {
                get_info: mem::transmute::<*mut c_void, GetInfo>(get_info),
                free_info: mem::transmute::<*mut c_void, FreeInfo>(free_info),
                copy_info: mem::transmute::<*mut c_void, CopyInfo>(copy_info),
                fabric: mem::transmute::<*mut c_void, OpenFabric>(fabric),
                error_text: mem::transmute::<*mut c_void, ErrorText>(error_text),
            }
        })
    }

    /// Returns the text of an error, which functions of the library return with or without a minus.
    pub fn text(&self, code: i64) -> String {
        let code = c_int::try_from(code.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: the function takes any number.
        let text = unsafe { (self.error_text)(code) };
        // SAFETY: the library returns a constant text, or null.
        unsafe { text_at(text) }.unwrap_or_else(|| format!("error {code}"))
    }

    /// Asks for the providers of connectionless messages, those of this name only if one is given.
    ///
    /// # Errors
    /// There is none.
    pub fn providers(&'static self, name: Option<&str>) -> Result<Vec<Provider>, String> {
        // SAFETY: without an argument the function makes hints that hold every attribute, or returns null.
        let hints = unsafe { (self.copy_info)(ptr::null()) };
        if hints.is_null() {
            return Err("no memory".into());
        }
        let hints = Provider { library: self, info: hints };
        let name = name.map(CString::new).transpose().map_err(|error| error.to_string())?;
        // SAFETY: the hints are this function's, and new ones point to all their attributes. The library frees the
        // name with `free`, so it comes from `strdup`.
        unsafe {
            let info = hints.info;
            (*info).caps = MSG | SEND | RECV;
            (*info).mode = CONTEXT | CONTEXT2;
            (*(*info).ep_attr).kind = EP_RDM;
            (*(*info).tx_attr).msg_order = ORDER_SAS;
            (*(*info).rx_attr).msg_order = ORDER_SAS;
            (*(*info).domain_attr).threading = THREAD_DOMAIN;
            (*(*info).domain_attr).resource_mgmt = RM_ENABLED;
            (*(*info).domain_attr).mr_mode = MR_MODES;
            if let Some(name) = &name {
                (*(*info).fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
        let mut first = ptr::null_mut();
        // SAFETY: the hints are valid, and the place for the list is this function's.
        let code = unsafe {
            (self.get_info)(VERSION, ptr::null(), ptr::null(), 0, hints.info, &raw mut first)
        };
        if code != 0 {
            return Err(self.text(code.into()));
        }
        let mut found = Vec::new();
        let mut at = first;
        while !at.is_null() {
            // SAFETY: the list has been made by the library, and is still whole.
            let (copy, next) = unsafe { ((self.copy_info)(at), (*at).next) };
            if !copy.is_null() {
                found.push(Provider { library: self, info: copy });
            }
            at = next;
        }
        if !first.is_null() {
            // SAFETY: the list is the library's, and its entries were copied.
            unsafe { (self.free_info)(first) };
        }
        Ok(found)
    }
}

/// A provider with one of its domains.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(super) library: &'static FabricLibrary,
    /// A description that this object owns.
    pub(super) info: *mut Info,
}

impl Provider {
    /// Returns the providers that the library offers: those of a name, or all.
    ///
    /// # Errors
    /// The library is missing or too old, or offers none.
    pub fn all(name: Option<&str>) -> Result<Vec<Self>, String> {
        FabricLibrary::get()?.providers(name)
    }

    /// Name of the provider, such as `verbs;ofi_rxm`.
    pub fn name(&self) -> String {
        // SAFETY: descriptions by the library have this attribute, with names that are C strings or null.
        unsafe { text_at((*(*self.info).fabric_attr).prov_name) }.unwrap_or_default()
    }

    /// Name of the domain: a device or a network interface.
    pub fn domain(&self) -> String {
        // SAFETY: a description has the attributes of its domain, whose name is a C string or null.
        unsafe { text_at((*(*self.info).domain_attr).name) }.unwrap_or_default()
    }

    /// Kind of the addresses.
    pub fn address_format(&self) -> u32 {
        // SAFETY: the description is this object's.
        unsafe { (*self.info).addr_format }
    }

    /// Own address in the network, before an endpoint is open.
    pub fn source(&self) -> Option<SocketAddr> {
        // SAFETY: an address of the description has the length that stands beside it.
        let bytes = unsafe {
            let Info { src_addr, src_addrlen, .. } = *self.info;
            (!src_addr.is_null())
                .then(|| std::slice::from_raw_parts(src_addr.cast::<u8>(), src_addrlen).to_vec())
        };
        socket_address(&bytes?)
    }

    /// Rate of the network in bytes per second, if known.
    pub fn bytes_per_s(&self) -> Option<u64> {
        // SAFETY: a description names a network card with the attributes of its link, or null for each.
        let speed = unsafe {
            let nic = (*self.info).nic;
            if nic.is_null() || (*nic).link.is_null() {
                return None;
            }
            (*(*nic).link).speed
        };
        (speed > 0).then_some(speed as u64 / 8)
    }

    /// Longest message in bytes.
    pub fn message_max(&self) -> usize {
        // SAFETY: a description has the attributes of endpoints.
        unsafe { (*(*self.info).ep_attr).max_msg_size }
    }

    /// Largest numbers of sends and receives at once.
    pub(super) fn depths(&self) -> (usize, usize) {
        // SAFETY: a description has the attributes of both directions.
        unsafe { ((*(*self.info).tx_attr).size, (*(*self.info).rx_attr).size) }
    }

    /// Kinds of registered memory that the provider demands.
    pub(super) fn memory_modes(&self) -> c_int {
        // SAFETY: the attributes of the domain are there in each description.
        unsafe { (*(*self.info).domain_attr).mr_mode }
    }
}

// SAFETY: a description is memory that belongs to no thread, and this object alone has it.
unsafe impl Send for Provider {}

impl Drop for Provider {
    fn drop(&mut self) {
        // SAFETY: the description is a copy that only this object has.
        unsafe { (self.library.free_info)(self.info) };
    }
}

/// Returns a text of the library.
///
/// # Safety
/// The address is null or that of a C string.
unsafe fn text_at(text: *const c_char) -> Option<String> {
    // SAFETY: the caller says so.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Reads a socket address (`sockaddr_in`, `sockaddr_in6`).
pub(crate) fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let ip = match i32::from(family) {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?)),
        libc::AF_INET6 => {
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

const NAME: &CStr = c"libfabric.so.1";
const MINIMUM: &str = "1.9";
