//! Hosts of a Slurm allocation, from its environment.

/// Returns the hosts of the allocation in the environment `variable`, each with its tasks if known. None
/// outside of an allocation.
///
/// # Errors
/// Fails for a variable that cannot be parsed, with one line that names it.
pub(crate) fn hosts(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(String, Option<u32>)>, String> {
    let Some(list) = variable(NODES).filter(|list| !list.is_empty()) else { return Ok(Vec::new()) };
    let names = expand(&list).ok_or_else(|| format!("{NODES}={list}: no list of hosts"))?;
    let Some(tasks) = variable(TASKS) else {
        return Ok(names.into_iter().map(|name| (name, None)).collect());
    };
    let counts = counts(&tasks).filter(|counts| counts.len() == names.len());
    let counts =
        counts.ok_or_else(|| format!("{TASKS}={tasks}: not a number for each of {list}"))?;
    Ok(names.into_iter().zip(counts.into_iter().map(Some)).collect())
}

/// Expands a list of names such as `a[1-3,07],b`.
fn expand(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut depth = 0;
    let words = list.split(|letter| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    });
    for word in words {
        names.extend(expand_word(word)?);
        if names.len() > HOSTS_MAX {
            return None;
        }
    }
    Some(names)
}

fn expand_word(word: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = word.split_once('[') else {
        return (!word.is_empty() && !word.contains(']')).then(|| vec![word.to_owned()]);
    };
    let (ranges, after) = rest.split_once(']')?;
    let ends = if after.is_empty() { vec![String::new()] } else { expand_word(after)? };
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        if from > to || (to - from) as usize >= HOSTS_MAX {
            return None;
        }
        for number in from..=to {
            let width = first.len();
            names.extend(ends.iter().map(|end| format!("{before}{number:0width$}{end}")));
        }
        if names.len() > HOSTS_MAX {
            return None;
        }
    }
    Some(names)
}

/// Expands a list of counts such as `2(x3),1`.
fn counts(text: &str) -> Option<Vec<u32>> {
    let mut counts = Vec::new();
    for word in text.split(',') {
        let (count, times) = match word.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (word, 1),
        };
        if times > HOSTS_MAX - counts.len() {
            return None;
        }
        counts.extend(vec![count.parse::<u32>().ok().filter(|count| *count > 0)?; times]);
    }
    Some(counts)
}

/// Slurm's variables: the hosts of an allocation, and the tasks on each.
pub(crate) const NODES: &str = "SLURM_JOB_NODELIST";
pub(crate) const TASKS: &str = "SLURM_TASKS_PER_NODE";

/// Maximum number of hosts; more are a mistake.
const HOSTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(nodes: &str, tasks: Option<&str>) -> Result<String, String> {
        let hosts = hosts(&|name| match name {
            NODES => Some(nodes.to_owned()),
            TASKS => tasks.map(str::to_owned),
            _ => None,
        })?;
        let words = hosts.into_iter().map(|(name, count)| match count {
            Some(count) => format!("{name}:{count}"),
            None => name,
        });
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lists_are_expanded_as_slurm_folds_them() {
        assert_eq!(hosts(&|_| None), Ok(Vec::new()));
        assert_eq!(found("n1", Some("3")).unwrap(), "n1:3");
        assert_eq!(found("n[1-2]", None).unwrap(), "n1 n2");
        let folded = found("n[08-10,3],login,r[1-2]c[1-2]", Some("2(x4),1,4(x4)")).unwrap();
        assert_eq!(folded, "n08:2 n09:2 n10:2 n3:2 login:1 r1c1:4 r1c2:4 r2c1:4 r2c2:4");
    }

    #[test]
    fn invalid_variables_are_named() {
        for nodes in
            ["n[1-", "n[2-1]", "n]", "a,,b", "n[x]", "n[1-99999999999]", "n[1-60000]m[1-9]"]
        {
            assert!(found(nodes, None).unwrap_err().contains(NODES), "{nodes}");
        }
        for tasks in ["", "1", "2(x3)", "2(x", "0(x2)", "1(x99999999999)"] {
            assert!(found("n[1-2]", Some(tasks)).unwrap_err().contains(TASKS), "{tasks}");
        }
    }
}
