//! Gateways that serve one job: started with it, given its pass, and ended with it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The gateways of a job. They end when this is dropped, or `mpiexec` ends in another way: their standard
/// input does.
#[derive(Default)]
pub(crate) struct Gateways {
    running: Vec<(String, Child)>,
}

impl Gateways {
    /// Starts a gateway by each of the commands, and tells it the job's pass on its standard input.
    pub fn start(commands: &[Vec<String>], pass: &str) -> Result<Self, String> {
        let mut gateways = Self::default();
        for words in commands {
            let text = words.join(" ");
            let wrong = |error: std::io::Error| format!("gateway `{text}`: {error}");
            let [program, arguments @ ..] = &words[..] else {
                return Err("a gateway without a command".into());
            };
            let mut child = Command::new(program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // Signals from the terminal end the ranks first, which need it until then.
                .process_group(0)
                .spawn()
                .map_err(wrong)?;
            let told = child.stdin.as_mut().map(|input| writeln!(input, "{pass}"));
            gateways.running.push((text.clone(), child));
            told.unwrap_or(Ok(())).map_err(wrong)?;
        }
        Ok(gateways)
    }

    /// Takes those out that have ended, and says how.
    pub fn take_ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        self.running.retain_mut(|(text, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                ended.push(format!("gateway `{text}` has ended: {status}"));
                false
            }
            Err(error) => {
                ended.push(format!("gateway `{text}`: {error}"));
                false
            }
        });
        ended
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        self.running.iter_mut().for_each(|(_, child)| drop(child.stdin.take()));
        let limit = Instant::now() + PATIENCE;
        while !self.running.is_empty() && Instant::now() < limit {
            thread::sleep(TICK);
            self.take_ended();
        }
        for (_, child) in &mut self.running {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How long gateways may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        vec!["sh".into(), "-c".into(), text.into()]
    }

    #[test]
    fn a_gateway_hears_the_pass_and_ends_with_the_job() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("heard");
        let script = format!("read line; echo $line >{0}; cat; echo end >>{0}", file.display());
        let gateways = Gateways::start(&[words(&script)], "number secret").unwrap();
        drop(gateways);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "number secret\nend\n");
    }

    #[test]
    fn one_that_does_not_end_is_killed_and_one_that_ends_early_told_of() {
        let began = Instant::now();
        let mut gateways =
            Gateways::start(&[words("read line; exit 3"), words("exec sleep 60")], "x").unwrap();
        let mut ended = Vec::new();
        while ended.is_empty() && began.elapsed() < Duration::from_secs(30) {
            ended = gateways.take_ended();
            thread::sleep(TICK);
        }
        assert_eq!(ended.len(), 1);
        assert!(ended[0].contains("exit 3") && ended[0].ends_with("exit status: 3"), "{ended:?}");
        drop(gateways);
        assert!(began.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_gateway_that_cannot_be_started_is_named() {
        let error = Gateways::start(&[vec!["/missing/gateway".into()]], "x").err().unwrap();
        assert!(error.contains("/missing/gateway"), "{error}");
    }
}
