//! The layouts, compared with the headers of the installed libfabric.

use std::mem::offset_of;
use std::process::Command;

use super::layout::*;

/// Compares what a C program says of these fields and constants.
macro_rules! facts {
    (fields { $($rust:ident $c:literal: $($field:ident $of_c:literal),*;)* } constants { $($constant:ident $name:literal),* }) => {{
        let mut program = String::from(concat!(
            "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n",
            "#include <rdma/fi_endpoint.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_eq.h>\nint main(void) {\n",
        ));
        let mut own = String::new();
        $($(
            program += concat!("printf(\"", $c, ".", $of_c, " %zu\\n\", offsetof(struct ", $c, ", ", $of_c, "));\n");
            own += &format!("{}.{} {}\n", $c, $of_c, offset_of!($rust, $field));
        )*)*
        $(
            program += concat!("printf(\"", $name, " %llu\\n\", (unsigned long long)(", $name, "));\n");
            own += &format!("{} {}\n", $name, $constant as u64);
        )*
        program += "printf(\"context %zu %zu\\n\", sizeof(struct fi_context2), sizeof(struct fi_cq_msg_entry));\n";
        own += &format!("context {} {}\n", size_of::<Context>(), size_of::<CqEntry>());
        program += "printf(\"attributes %zu %zu %zu\\n\", sizeof(struct fi_av_attr), sizeof(struct fi_cq_attr), ";
        program += "sizeof(struct fi_cq_err_entry));\nreturn 0; }\n";
        own += &format!(
            "attributes {} {} {}\n", size_of::<AvAttr>(), size_of::<CqAttr>(), size_of::<CqError>()
        );
        (program, own)
    }};
}

#[test]
fn layouts_are_those_of_the_headers() {
    let (program, own) = facts! {
        fields {
        Fid "fid": ops "ops";
        FidOps "fi_ops": close "close", bind "bind", control "control";
        FabricFid "fid_fabric": ops "ops";
        FabricOps "fi_ops_fabric": domain "domain", trywait "trywait";
        DomainFid "fid_domain": ops "ops", memory "mr";
        DomainOps "fi_ops_domain": av_open "av_open", cq_open "cq_open", endpoint "endpoint";
        MemoryOps "fi_ops_mr": register "reg";
        MemoryFid "fid_mr": descriptor "mem_desc";
        AvAttr "fi_av_attr": kind "type", rx_ctx_bits "rx_ctx_bits", count "count", ep_per_node "ep_per_node",
            name "name", map_addr "map_addr", flags "flags";
        AvFid "fid_av": ops "ops";
        AvOps "fi_ops_av": insert "insert";
        CqAttr "fi_cq_attr": size "size", flags "flags", format "format", wait_obj "wait_obj",
            signaling_vector "signaling_vector", wait_cond "wait_cond", wait_set "wait_set";
        CqFid "fid_cq": ops "ops";
        CqOps "fi_ops_cq": read "read", read_error "readerr";
        CqEntry "fi_cq_msg_entry": context "op_context", flags "flags", len "len";
        CqError "fi_cq_err_entry": context "op_context", flags "flags", len "len", buf "buf", data "data", tag "tag",
            olen "olen", err "err", prov_errno "prov_errno", err_data "err_data", err_data_size "err_data_size";
        EndpointFid "fid_ep": ops "ops", names "cm", messages "msg";
        NameOps "fi_ops_cm": name "getname";
        MessageOps "fi_ops_msg": receive "recv", send "send";
        TxAttr "fi_tx_attr": caps "caps", mode "mode", op_flags "op_flags", msg_order "msg_order",
            comp_order "comp_order", inject_size "inject_size", size "size";
        RxAttr "fi_rx_attr": caps "caps", mode "mode", op_flags "op_flags", msg_order "msg_order",
            comp_order "comp_order", total_buffered_recv "total_buffered_recv", size "size";
        EpAttr "fi_ep_attr": kind "type", protocol "protocol", protocol_version "protocol_version",
            max_msg_size "max_msg_size";
        DomainAttr "fi_domain_attr": domain "domain", name "name", threading "threading",
            control_progress "control_progress", data_progress "data_progress", resource_mgmt "resource_mgmt",
            av_type "av_type", mr_mode "mr_mode";
        FabricAttr "fi_fabric_attr": fabric "fabric", name "name", prov_name "prov_name";
        Info "fi_info": next "next", caps "caps", mode "mode", addr_format "addr_format", src_addrlen "src_addrlen",
            dest_addrlen "dest_addrlen", src_addr "src_addr", dest_addr "dest_addr", handle "handle",
            tx_attr "tx_attr", rx_attr "rx_attr", ep_attr "ep_attr", domain_attr "domain_attr",
            fabric_attr "fabric_attr", nic "nic";
        NicFid "fid_nic": device "device_attr", bus "bus_attr", link "link_attr";
        LinkAttr "fi_link_attr": address "address", mtu "mtu", speed "speed";
        }
        constants { MSG "FI_MSG", RECV "FI_RECV", SEND "FI_SEND", CONTEXT "FI_CONTEXT", CONTEXT2 "FI_CONTEXT2",
            ORDER_SAS "FI_ORDER_SAS", EP_RDM "FI_EP_RDM", THREAD_DOMAIN "FI_THREAD_DOMAIN",
            RM_ENABLED "FI_RM_ENABLED", MR_LOCAL "FI_MR_LOCAL",
            MR_MODES "(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)",
            CQ_FORMAT_MSG "FI_CQ_FORMAT_MSG", WAIT_NONE "FI_WAIT_NONE", WAIT_FD "FI_WAIT_FD", GETWAIT "FI_GETWAIT",
            ENABLE "FI_ENABLE", ANY "FI_ADDR_UNSPEC", EAVAIL "FI_EAVAIL", VERSION "FI_VERSION(1, 9)" }
    };
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("facts.c"), folder.path().join("facts"));
    std::fs::write(&source, "#include <rdma/fabric.h>\nint main(void) { return 0; }\n").unwrap();
    let compile = || Command::new("cc").arg(&source).arg("-o").arg(&binary).output();
    if !compile().is_ok_and(|done| done.status.success()) {
        return testing::skip("libfabric's headers (libfabric-dev), or a C compiler, are not here");
    }
    std::fs::write(&source, program).unwrap();
    let done = compile().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = Command::new(&binary).output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    for (theirs, own) in said.lines().zip(own.lines()) {
        assert_eq!(theirs, own);
    }
    assert_eq!(said.lines().count(), own.lines().count());
}
