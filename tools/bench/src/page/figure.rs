//! Figures: what a file of results shows.

use std::path::Path;

use serde::Deserialize;

use crate::report::{Cell, Report};
use crate::table;

/// A table of times, and how it came about.
#[derive(Debug)]
pub struct Figure {
    pub title: String,
    pub notes: Vec<String>,
    pub unit: String,
    /// Limits and libraries, which are compared.
    pub series: Vec<String>,
    pub rows: Vec<FigureRow>,
    /// Machine, time, and commands.
    pub origin: Vec<String>,
}

/// One operation and case.
#[derive(Debug)]
pub struct FigureRow {
    pub label: String,
    /// For each of the series.
    pub cells: Vec<FigureCell>,
}

/// A value and its text.
#[derive(Debug, Default)]
pub struct FigureCell {
    /// None if it was not measured, or is no number.
    pub value: Option<f64>,
    pub text: String,
    /// The range over the rounds, for instance.
    pub detail: String,
}

/// A table that the project publishes.
#[derive(Debug, Deserialize)]
struct Published {
    title: String,
    claim: String,
    date: String,
    machine: String,
    command: String,
    #[serde(default)]
    unit: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Figure {
    /// Reads a file of `canele bench`, or a published table.
    pub fn read(file: &Path) -> Result<Self, String> {
        let name = file.display();
        let text =
            std::fs::read_to_string(file).map_err(|error| format!("report: {name}: {error}"))?;
        if let Ok(published) = serde_json::from_str::<Published>(&text) {
            return Ok(Self::published(published));
        }
        match serde_json::from_str::<Report>(&text) {
            Ok(report) => Ok(Self::measured(&report)),
            Err(error) => Err(format!("report: {name}: no results of `canele bench`: {error}")),
        }
    }

    fn published(table: Published) -> Self {
        let cell = |text: String| {
            let value = text.trim().parse().ok();
            FigureCell { value, text, detail: String::new() }
        };
        let rows = table.rows.into_iter().map(|row| {
            let mut texts = row.into_iter();
            let label = texts.next().unwrap_or_default();
            FigureRow { label, cells: texts.map(cell).collect() }
        });
        Self {
            title: table.title,
            notes: vec![table.claim],
            unit: table.unit,
            series: table.columns.into_iter().skip(1).collect(),
            rows: rows.collect(),
            origin: vec![format!("{}, {}: {}", table.date, table.machine, table.command)],
        }
    }

    fn measured(report: &Report) -> Self {
        let has_limit = report.has_limit();
        let limit = has_limit.then(|| "limit of the link".to_owned());
        let libraries = report.entries.iter().map(|entry| entry.name());
        let rows = report.rows().into_iter().map(|row| {
            let limit = has_limit.then(|| plain(row.limit_us));
            let cells = limit.into_iter().chain(row.cells.iter().map(measured_cell)).collect();
            FigureRow { label: table::label(report, &row), cells }
        });
        let environment = &report.environment;
        let machine = format!(
            "{}; {} cores, {}, {}; load {} to {}; {} rounds, the libraries in turn",
            environment.when(),
            environment.cores,
            environment.processor,
            environment.kernel,
            environment.load_before,
            environment.load_after,
            report.rounds
        );
        let commands = report.entries.iter().map(|entry| entry.command.clone());
        let failures = report.entries.iter().filter_map(|entry| {
            entry.failure.as_ref().map(|why| format!("{}: {why}", entry.name()))
        });
        Self {
            title: report.title(),
            notes: failures.collect(),
            unit: "µs".into(),
            series: limit.into_iter().chain(libraries).collect(),
            rows: rows.collect(),
            origin: [machine].into_iter().chain(commands).collect(),
        }
    }
}

fn measured_cell(cell: &Cell) -> FigureCell {
    let Some(across) = cell.time_us else { return plain(None) };
    let detail = format!(
        "{} to {} µs in {} rounds",
        table::time(across.least),
        table::time(across.greatest),
        across.rounds
    );
    FigureCell { detail, ..plain(Some(across.median)) }
}

fn plain(value: Option<f64>) -> FigureCell {
    let text = value.map_or_else(|| "–".to_owned(), table::time);
    FigureCell { value, text, detail: String::new() }
}
