//! One HTML file with the figures of many results. It needs no network, and nothing beside it.

mod chart;
mod escape;
mod figure;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use escape::escaped;
use figure::Figure;

/// Options of `canele bench report`.
#[derive(Debug, Args)]
pub struct PageOptions {
    /// Folders of results; those that are there of build/bench and docs/results by default
    folders: Vec<PathBuf>,
    /// File to write
    #[arg(long, default_value = "build/bench/report.html")]
    output: PathBuf,
}

/// Writes the file. Returns what to tell.
pub fn write(options: &PageOptions) -> Result<String, String> {
    let folders = match &options.folders[..] {
        [] => DEFAULT_FOLDERS.map(PathBuf::from).into_iter().filter(|one| one.is_dir()).collect(),
        folders => folders.to_vec(),
    };
    let mut figures = Vec::new();
    for folder in &folders {
        figures.extend(read(folder)?);
    }
    if figures.is_empty() {
        let asked: Vec<_> = folders.iter().map(|one| one.display().to_string()).collect();
        let places = if asked.is_empty() { DEFAULT_FOLDERS.join(", ") } else { asked.join(", ") };
        return Err(format!(
            "report: no results in {places}: run `canele bench compare`, or name folders of results"
        ));
    }
    let output = &options.output;
    let failed = |error| format!("report: {}: {error}", output.display());
    if let Some(folder) = output.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(output, page(&figures)).map_err(failed)?;
    Ok(format!("{}: {} figures", output.display(), figures.len()))
}

/// Figures of the results in a folder, in the order of their names.
fn read(folder: &Path) -> Result<Vec<Figure>, String> {
    let failed = |error| format!("report: {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|file| Figure::read(file)).collect()
}

fn page(figures: &[Figure]) -> String {
    let mut contents = String::new();
    let mut body = String::new();
    for (number, figure) in figures.iter().enumerate() {
        let title = escaped(&figure.title);
        let _ = writeln!(contents, "<li><a href=\"#figure-{number}\">{title}</a></li>");
        let _ = writeln!(body, "<section id=\"figure-{number}\">\n<h2>{title}</h2>");
        for note in &figure.notes {
            let _ = writeln!(body, "<p>{}</p>", escaped(note));
        }
        body.push_str(&chart::draw(figure));
        body.push_str(&table(figure));
        let _ = writeln!(body, "<details><summary>How it was measured</summary>");
        for line in &figure.origin {
            let _ = writeln!(body, "<pre>{}</pre>", escaped(line));
        }
        body.push_str("</details>\n</section>\n");
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Canele, measured</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>Canele, measured</h1>\n<p>Times of Canele, of other MPIs, of raw TCP and of \
         the link itself. Less is better. Point at a mark for its value.</p></header>\n\
         <nav><ol>\n{contents}</ol></nav>\n<main>\n{body}</main>\n<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n"
    )
}

fn table(figure: &Figure) -> String {
    let mut text = String::from("<div class=\"table\"><button type=\"button\">Copy</button>\n");
    text.push_str("<table>\n<thead><tr><th></th>");
    for name in &figure.series {
        let _ = write!(text, "<th>{}</th>", escaped(name));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in &figure.rows {
        let _ = write!(text, "<tr><th>{}</th>", escaped(&row.label));
        for cell in &row.cells {
            let _ = write!(
                text,
                "<td title=\"{}\">{}</td>",
                escaped(&cell.detail),
                escaped(&cell.text)
            );
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table></div>\n");
    text
}

const DEFAULT_FOLDERS: [&str; 2] = ["build/bench", "docs/results"];
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str = r#"{"title": "Puts & <gets>", "claim": "Less is better.",
        "date": "2026-11-30", "machine": "a machine", "command": "canele bench x", "unit": "µs",
        "columns": ["operation", "Canele", "raw TCP"],
        "rows": [["put, 8 B", "0.0152", "–"], ["get \"one\"", "9.5", "14.5"]]}"#;

    fn write_to(folder: &Path, files: &[(&str, &str)]) -> Result<String, String> {
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let output = folder.join("new/report.html");
        write(&PageOptions { folders: vec![folder.to_owned()], output: output.clone() })?;
        Ok(std::fs::read_to_string(output).unwrap())
    }

    #[test]
    fn every_value_is_in_the_table_and_in_the_chart() {
        let folder = tempfile::tempdir().unwrap();
        let page = write_to(folder.path(), &[("1.json", PUBLISHED), ("x.txt", "no")]).unwrap();
        for part in [
            "<h2>Puts &amp; &lt;gets&gt;</h2>",
            "<th>get &quot;one&quot;</th>",
            ">0.0152</td>",
            ">–</td>",
            "<title>put, 8 B, Canele: 0.0152 µs</title>",
            "<title>get &quot;one&quot;, raw TCP: 14.5 µs</title>",
            "canele bench x",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert_eq!(page.matches("<circle class=\"mark").count(), 3);
    }

    #[test]
    fn the_page_needs_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let page = write_to(folder.path(), &[("1.json", PUBLISHED)]).unwrap();
        for part in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_to(folder.path(), &[]).unwrap_err();
        assert!(error.contains("no results in"), "{error}");
        let error = write_to(folder.path(), &[("bad.json", "{\"rows\": 3}")]).unwrap_err();
        assert!(error.contains("bad.json: no results of `canele bench`"), "{error}");
        let missing = folder.path().join("missing");
        let error = read(&missing).unwrap_err();
        assert!(error.contains("missing"), "{error}");
    }
}
