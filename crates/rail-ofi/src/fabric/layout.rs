//! Layouts of libfabric's interface that this rail uses (rdma/fabric.h and others of version 1.9 and later).
//!
//! Tables of functions end where the last function used ends: libfabric only appends to them. A test compares sizes and
//! offsets with the headers.

use std::ffi::{c_char, c_int, c_void};

/// An object of which nothing but its address is used.
pub(super) type Opaque = *mut c_void;
/// A function that this rail does not call.
pub(super) type Unused = *const c_void;
/// Number of a peer's address.
pub(super) type Address = u64;

/// `struct fid`, with which each object begins.
#[repr(C)]
pub(super) struct Fid {
    class: usize,
    context: Opaque,
    pub ops: *const FidOps,
}

/// `struct fi_ops`.
#[repr(C)]
pub(super) struct FidOps {
    size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, Opaque) -> c_int,
}

/// `struct fid_fabric`.
#[repr(C)]
pub(super) struct FabricFid {
    pub fid: Fid,
    pub ops: *const FabricOps,
}

/// `struct fi_ops_fabric`.
#[repr(C)]
pub(super) struct FabricOps {
    size: usize,
    pub domain:
        unsafe extern "C" fn(*mut FabricFid, *mut Info, *mut *mut DomainFid, Opaque) -> c_int,
    unused: [Unused; 3],
    pub trywait: unsafe extern "C" fn(*mut FabricFid, *mut *mut Fid, c_int) -> c_int,
}

/// `struct fid_domain`.
#[repr(C)]
pub(super) struct DomainFid {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub memory: *const MemoryOps,
}

/// `struct fi_ops_domain`.
#[repr(C)]
pub(super) struct DomainOps {
    size: usize,
    pub av_open:
        unsafe extern "C" fn(*mut DomainFid, *mut AvAttr, *mut *mut AvFid, Opaque) -> c_int,
    pub cq_open:
        unsafe extern "C" fn(*mut DomainFid, *mut CqAttr, *mut *mut CqFid, Opaque) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut DomainFid, *mut Info, *mut *mut EndpointFid, Opaque) -> c_int,
}

/// `struct fi_ops_mr`.
#[repr(C)]
pub(super) struct MemoryOps {
    size: usize,
    pub register: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut MemoryFid,
        Opaque,
    ) -> c_int,
}

/// `struct fid_mr`.
#[repr(C)]
pub(super) struct MemoryFid {
    pub fid: Fid,
    pub descriptor: Opaque,
}

/// `struct fi_av_attr`.
#[repr(C)]
pub(super) struct AvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: Opaque,
    pub flags: u64,
}

/// `struct fid_av`.
#[repr(C)]
pub(super) struct AvFid {
    pub fid: Fid,
    pub ops: *const AvOps,
}

/// `struct fi_ops_av`.
#[repr(C)]
pub(super) struct AvOps {
    size: usize,
    pub insert:
        unsafe extern "C" fn(*mut AvFid, *const c_void, usize, *mut Address, u64, Opaque) -> c_int,
}

/// `struct fi_cq_attr`.
#[repr(C)]
pub(super) struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: Opaque,
}

/// `struct fid_cq`.
#[repr(C)]
pub(super) struct CqFid {
    pub fid: Fid,
    pub ops: *const CqOps,
}

/// `struct fi_ops_cq`.
#[repr(C)]
pub(super) struct CqOps {
    size: usize,
    pub read: unsafe extern "C" fn(*mut CqFid, Opaque, usize) -> isize,
    unused: Unused,
    pub read_error: unsafe extern "C" fn(*mut CqFid, *mut CqError, u64) -> isize,
}

/// `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqEntry {
    pub context: *mut Context,
    pub flags: u64,
    pub len: usize,
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
pub(super) struct CqError {
    pub context: *mut Context,
    pub flags: u64,
    pub len: usize,
    pub buf: Opaque,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: Opaque,
    pub err_data_size: usize,
}

/// `struct fi_context2`: room that the provider uses until the completion.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Context(pub [Opaque; 8]);

/// `struct fid_ep`.
#[repr(C)]
pub(super) struct EndpointFid {
    pub fid: Fid,
    pub ops: Opaque,
    pub names: *const NameOps,
    pub messages: *const MessageOps,
}

/// `struct fi_ops_cm`.
#[repr(C)]
pub(super) struct NameOps {
    size: usize,
    unused: Unused,
    pub name: unsafe extern "C" fn(*mut Fid, Opaque, *mut usize) -> c_int,
}

/// `struct fi_ops_msg`.
#[repr(C)]
pub(super) struct MessageOps {
    size: usize,
    pub receive: unsafe extern "C" fn(
        *mut EndpointFid,
        Opaque,
        usize,
        Opaque,
        Address,
        *mut Context,
    ) -> isize,
    unused: [Unused; 2],
    pub send: unsafe extern "C" fn(
        *mut EndpointFid,
        *const c_void,
        usize,
        Opaque,
        Address,
        *mut Context,
    ) -> isize,
}

/// `struct fi_tx_attr`.
#[repr(C)]
pub(super) struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
}

/// `struct fi_rx_attr`.
#[repr(C)]
pub(super) struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
}

/// `struct fi_ep_attr`.
#[repr(C)]
pub(super) struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
}

/// `struct fi_domain_attr`.
#[repr(C)]
pub(super) struct DomainAttr {
    pub domain: *mut DomainFid,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
pub(super) struct FabricAttr {
    pub fabric: *mut FabricFid,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
}

/// `struct fi_info`.
#[repr(C)]
pub(super) struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: Opaque,
    pub dest_addr: Opaque,
    pub handle: *mut Fid,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut NicFid,
}

/// `struct fid_nic`.
#[repr(C)]
pub(super) struct NicFid {
    pub fid: Fid,
    pub device: Opaque,
    pub bus: Opaque,
    pub link: *mut LinkAttr,
}

/// `struct fi_link_attr`.
#[repr(C)]
pub(super) struct LinkAttr {
    pub address: *mut c_char,
    pub mtu: usize,
    /// Bits per second.
    pub speed: usize,
}

/// `FI_VERSION(1, 9)`: the version of the interface that is asked for.
pub(super) const VERSION: u32 = 1 << 16 | 9;
/// `FI_MSG`.
pub(super) const MSG: u64 = 1 << 1;
/// `FI_RECV`.
pub(super) const RECV: u64 = 1 << 10;
/// `FI_SEND`.
pub(super) const SEND: u64 = 1 << 11;
/// `FI_CONTEXT`.
pub(super) const CONTEXT: u64 = 1 << 59;
/// `FI_CONTEXT2`.
pub(super) const CONTEXT2: u64 = 1 << 52;
/// `FI_ORDER_SAS`: sends arrive in their order.
pub(super) const ORDER_SAS: u64 = 1 << 8;
/// `FI_EP_RDM`.
pub(super) const EP_RDM: c_int = 3;
/// `FI_THREAD_DOMAIN`.
pub(super) const THREAD_DOMAIN: c_int = 3;
/// `FI_RM_ENABLED`.
pub(super) const RM_ENABLED: c_int = 2;
/// `FI_MR_LOCAL`, `FI_MR_VIRT_ADDR`, `FI_MR_ALLOCATED` and `FI_MR_PROV_KEY`.
pub(super) const MR_MODES: c_int = MR_LOCAL | 1 << 4 | 1 << 5 | 1 << 6;
/// `FI_MR_LOCAL`.
pub(super) const MR_LOCAL: c_int = 1 << 2;
/// `FI_AV_MAP` and `FI_AV_TABLE`.
pub(super) const AV_KINDS: [c_int; 2] = [1, 2];
/// `FI_CQ_FORMAT_MSG`.
pub(super) const CQ_FORMAT_MSG: c_int = 2;
/// `FI_WAIT_NONE`.
pub(super) const WAIT_NONE: c_int = 0;
/// `FI_WAIT_FD`.
pub(super) const WAIT_FD: c_int = 3;
/// `FI_GETWAIT`.
pub(super) const GETWAIT: c_int = 5;
/// `FI_ENABLE`.
pub(super) const ENABLE: c_int = 6;
/// `FI_ADDR_UNSPEC`.
pub(super) const ANY: Address = u64::MAX;
/// `FI_EAVAIL`: an error waits in the completion queue.
pub(super) const EAVAIL: isize = 259;
