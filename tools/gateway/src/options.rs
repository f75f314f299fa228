//! Command line, and the job's pass, which is never on it.

use auth::Secret;
use clap::{Parser, ValueEnum};
use netpath::ListenAddress;

use crate::network::Net;

/// Forward connections between the hosts of a site and other sites
#[derive(Debug, Parser)]
#[command(name = "canele-gateway", version, after_help = PASS)]
pub struct Options {
    /// Listen here over TCP and UDP, on the first free port, such as 10.77.1.10:7000-7009; may be repeated
    #[arg(long, help_heading = ADDRESSES, value_name = "ADDRESS[:PORTS]", required = true)]
    pub listen: Vec<ListenAddress>,
    /// Connect to hosts of this network; may be repeated
    #[arg(long, help_heading = ADDRESSES, value_name = "NETWORK")]
    pub allow: Vec<Net>,
    /// Connect to gateways of other sites in this network; may be repeated
    #[arg(long, help_heading = ADDRESSES, value_name = "NETWORK")]
    pub gateways: Vec<Net>,
    /// Pass connections of other sites' gateways on to those of a third site
    #[arg(long, help_heading = ADDRESSES)]
    pub transit: bool,
    /// Protocol to other gateways: auto (TCP with BBR, otherwise UDP), tcp, or udp (TCP as fallback)
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub between: Between,
    /// End at the end of standard input
    #[arg(long)]
    pub until_eof: bool,
    /// Write an empty line each second, as a sign of life
    #[arg(long)]
    pub beat: bool,
    /// Print statistics at the end of standard input, too
    #[arg(long)]
    pub account: bool,
}

const ADDRESSES: &str = "Addresses";

const PASS: &str = "The first line of standard input is the job's pass: its number in 16 hexadecimal digits, a space, and its secret in 64.";

/// Protocol between gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Between {
    /// TCP where BBR is available, otherwise UDP; the other as fallback
    #[default]
    Auto,
    /// TCP only
    Tcp,
    /// UDP, with TCP as fallback
    Udp,
}

/// A proof of membership in a job.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Number of the job.
    pub job: u64,
    /// Secret of the job.
    pub secret: Secret,
}

/// Error for a line that is no pass; the line itself is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the first line of standard input is no pass: the job's number in 16 hexadecimal digits, a space, \
     its secret in 64"
)]
pub struct PassError;

impl Pass {
    /// Parses the pass in a line.
    ///
    /// # Errors
    /// Fails if the line is no pass.
    pub fn parse(line: &str) -> Result<Self, PassError> {
        let (job, secret) = line.trim_end().split_once(' ').ok_or(PassError)?;
        let is_number = job.len() == 16 && job.bytes().all(|digit| digit.is_ascii_hexdigit());
        let job = u64::from_str_radix(job, 16).ok().filter(|_| is_number).ok_or(PassError)?;
        Ok(Self { job, secret: Secret::parse(secret).ok_or(PassError)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_a_number_and_a_secret() {
        let line = format!("00000000000000ff {}\n", "0a".repeat(32));
        let pass = Pass::parse(&line).unwrap();
        assert_eq!((pass.job, pass.secret.expose()), (255, &[10; 32]));
        assert_eq!(format!("{pass:?}"), "Pass { job: 255, secret: Secret(…) }");
        let short = format!("ff {}", "0a".repeat(32));
        for wrong in ["", "x", &line.replace('a', "g"), &line.replace(' ', "  "), &short] {
            assert_eq!(Pass::parse(wrong).err(), Some(PassError), "{wrong}");
        }
    }
}
