//! A traced or profiled rank as its agent sees it: its recordings, and the layer of MPI calls in front of the library.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use crate::channel::{MessageKind, RankStart, Start};
use crate::system;

/// The recordings of a rank: of events, and of counted calls.
pub(crate) struct TracedRank {
    trace: Option<File>,
    profile: Option<File>,
}

impl TracedRank {
    /// Makes the recordings that the job wants, for the rank that `command` starts; none if it wants none.
    ///
    /// # Errors
    /// The layer of MPI calls is not installed, or the system lacks a resource; the text says so.
    pub fn of(
        all: &Start,
        start: &RankStart,
        command: &mut Command,
    ) -> Result<Option<Self>, String> {
        if all.trace_bytes.is_none() && !all.has_profile {
            return Ok(None);
        }
        let trace = all.trace_bytes.map(recorder::create).transpose();
        let trace = trace.map_err(|error| format!("-trace: {error}"))?;
        let profile = all.has_profile.then(recorder::create_profile).transpose();
        let profile = profile.map_err(|error| format!("-profile: {error}"))?;
        for (variable, recording) in
            [(recorder::VARIABLE, &trace), (recorder::PROFILE_VARIABLE, &profile)]
        {
            if let Some(recording) = recording {
                command.env(variable, recording.as_raw_fd().to_string());
                system::inherit(command, recording.as_raw_fd());
            }
        }
        let given = start.environment.iter().rev().find(|(name, _)| name == PRELOAD);
        let inherited = || env::var_os(PRELOAD).filter(|_| start.inherit);
        let mut layers = layer()?.into_os_string();
        if let Some(others) = given.map(|(_, value)| OsString::from(value)).or_else(inherited) {
            layers.push(":");
            layers.push(others);
        }
        command.env(PRELOAD, layers);
        Ok(Some(Self { trace, profile }))
    }

    /// Passes on the recordings of a rank that has ended: each in pieces, with an empty one at the end.
    pub fn read(self, mut take: impl FnMut(MessageKind, &[u8])) {
        if let Some(trace) = self.trace {
            read(&trace, recorder::used(&trace), |piece| take(MessageKind::Trace, piece));
        }
        if let Some(profile) = self.profile {
            let used = recorder::used_profile(&profile);
            read(&profile, used, |piece| take(MessageKind::Profile, piece));
        }
    }
}

fn read(recording: &File, used: io::Result<u64>, mut take: impl FnMut(&[u8])) {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    // What cannot be read is missing.
    let used = used.unwrap_or(0);
    while at < used {
        let len = PIECE.min((used - at) as usize);
        if recording.read_exact_at(&mut piece[..len], at).is_err() {
            break;
        }
        take(&piece[..len]);
        at += len as u64;
    }
    take(&[]);
}

/// Finds the layer of MPI calls: in the library folder of this installation, or beside the agent in a build folder.
fn layer() -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("-trace, -profile: own path: {error}");
    let agent = env::current_exe().map_err(failed)?;
    let beside = agent.with_file_name(LAYER);
    let installed = agent.parent().and_then(|bin| bin.parent());
    let installed = installed.map(|prefix| prefix.join("lib").join(LAYER));
    let found = installed.iter().chain([&beside]).find(|path| path.is_file());
    let Some(path) = found else {
        let missing = installed.as_ref().unwrap_or(&beside).display();
        return Err(format!("-trace, -profile: {missing} is missing: install Canele again"));
    };
    match path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        true => Err(format!(
            "-trace, -profile: {} has a space or a colon in its path, which {PRELOAD} cannot name",
            path.display()
        )),
        false => Ok(path.clone()),
    }
}

const LAYER: &str = "libcanele_trace.so";
const PRELOAD: &str = "LD_PRELOAD";
/// Length of a piece of a recording.
const PIECE: usize = 1 << 20;
