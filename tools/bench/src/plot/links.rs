//! Plot of a sweep: the measured quantity over the parameter in which links differ.

use std::error::Error;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use super::legend::Area;
use super::{Axes, Parts, PlotError, PlotLine, Sheet, curves, look, note, size, tick, time_label};
use crate::instrument::{Column, Quantity, Statistic};
use crate::library::LibraryKind;
use crate::record::Case;
use crate::report::{By, Row};
use crate::scenario::Crossing;
use crate::sweep::{Knob, Sweep};

/// Draws a sweep into `folder`: the time over the limit, or the time if there is none, for each case. Each
/// library and each further condition has a curve.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn draw_sweep(sweep: &Sweep, by: By, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let panels = link_panels(sweep, by);
    if panels.is_empty() {
        return Ok(Vec::new());
    }
    let note = note(&sweep.whole(), by);
    let sheet = Sheet { title: sweep.title(), note, size: size(panels.len()) };
    sheet.draw(&folder.join(sweep.stem()), &panels)
}

/// Curves of one case of a sweep over its links.
struct LinkPanel {
    title: String,
    knob: Knob,
    quantity: Quantity,
    label: &'static str,
    /// Positions and labels of links on the axis.
    marks: Vec<(f64, String)>,
    lines: Vec<PlotLine>,
}

impl Parts for Vec<LinkPanel> {
    fn count(&self) -> usize {
        self.len()
    }

    fn draw<B: DrawingBackend>(
        &self,
        index: usize,
        area: &Area<'_, B>,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        let LinkPanel { title, knob, quantity, label, marks, lines } = &self[index];
        let name = |at: f64| {
            let near = |mark: &&(f64, String)| (mark.0 / at - 1.0).abs() < 1e-6;
            marks.iter().find(near).map_or_else(String::new, |(_, name)| name.clone())
        };
        let points_of = marks.iter().map(|(at, _)| *at).collect();
        let axes = Axes {
            head: knob.head(),
            marks: points_of,
            name: &name,
            label,
            value: &|value| tick(*quantity, value),
        };
        curves(title, lines, &axes, area)
    }
}

/// Returns a panel for each case, by the first statistic that the instrument draws.
fn link_panels(sweep: &Sweep, by: By) -> Vec<LinkPanel> {
    let whole = sweep.whole();
    let description = whole.workload.description();
    let rows: Vec<(Crossing, Vec<Row>)> =
        sweep.links().map(|(crossing, report)| (crossing, report.rows())).collect();
    let knobs = sweep.knobs();
    let knob = knobs[0];
    let is_drawn = |row: &Row| {
        let drawn = |statistic: &&Statistic| (description.is_drawn)(row.case, **statistic);
        description.statistics.iter().find(drawn) == Some(&row.statistic)
    };
    let mut keys: Vec<(String, Case, Statistic)> = Vec::new();
    for row in rows.iter().flat_map(|(_, rows)| rows).filter(|row| is_drawn(row)) {
        let key = (row.operation.clone(), row.case, row.statistic);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let quantity = if whole.has_limit() { Quantity::OfLimit } else { Quantity::Time };
    let mut marks: Vec<(f64, String)> = Vec::new();
    for (crossing, _) in &rows {
        let mark = (knob.number(*crossing), knob.text(*crossing));
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    let panel = |(operation, case, statistic): (String, Case, Statistic)| {
        let mut lines: Vec<PlotLine> = Vec::new();
        for (index, entry) in whole.entries.iter().enumerate() {
            for (crossing, rows) in &rows {
                let is_it = |row: &&Row| {
                    (row.operation.as_str(), row.case, row.statistic)
                        == (operation.as_str(), case, statistic)
                };
                let row = rows.iter().find(is_it);
                let Some(value) = row.and_then(|row| row.value(index, quantity, by)) else {
                    continue;
                };
                let others = knobs[1..].iter().map(|knob| knob.text(*crossing));
                let words: Vec<String> = std::iter::once(entry.name()).chain(others).collect();
                let name = words.join(", ");
                let point = (knob.number(*crossing), value);
                let of_entry = format!("{}, ", entry.name());
                let place = lines.iter().filter(|line| line.name.starts_with(&of_entry)).count();
                match lines.iter_mut().find(|line| line.name == name) {
                    Some(line) => line.points.push(point),
                    None => lines.push(PlotLine {
                        name,
                        color: paler(look(&whole, index).0, place),
                        marker: look(&whole, index).1,
                        width: if entry.library == LibraryKind::Canele { 3 } else { 2 },
                        points: vec![point],
                    }),
                }
            }
        }
        for line in &mut lines {
            line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        lines.reverse();
        let text = |column: Column| {
            let text = column.text(&operation, case, statistic);
            match column {
                Column::Operation | Column::Statistic => text,
                _ => format!("{}: {text}", column.head()),
            }
        };
        let title = description.columns().map(text).collect::<Vec<_>>().join("; ");
        let label = time_label(&whole, quantity);
        LinkPanel { title, knob, quantity, label, marks: marks.clone(), lines }
    };
    keys.into_iter().map(panel).filter(|panel| !panel.lines.is_empty()).collect()
}

/// Returns a paler colour of a library, for another condition.
fn paler(color: RGBColor, place: usize) -> RGBColor {
    let share = 0.3 * place.min(2) as f64;
    let mix = |part: u8| (f64::from(part) + (255.0 - f64::from(part)) * share) as u8;
    RGBColor(mix(color.0), mix(color.1), mix(color.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_drawn_over_its_round_trips_with_a_curve_for_each_rate() {
        let folder = tempfile::tempdir().unwrap();
        let sweep = crate::sweep::tests::sweep();
        let paths = draw_sweep(&sweep, By::Median, folder.path()).unwrap();
        let svg = std::fs::read_to_string(&paths[0]).unwrap();
        for text in [
            "over 6 links",
            "round trip",
            "300 ms",
            "Canele, 100 Mb/s",
            "Canele, 10 Gb/s",
            "MPICH, 10 Gb/s",
            "size: 1 MiB",
            "time / limit of the link",
        ] {
            assert!(svg.contains(text), "{text} is not in the plot");
        }
        let panels = link_panels(&sweep, By::Median);
        assert_eq!(panels.len(), 2);
        // Two rates of each of three libraries, three round trips.
        assert!(panels.iter().all(|panel| panel.lines.len() == 6));
        assert!(panels[0].lines.iter().all(|line| line.points.len() == 3));
    }
}
