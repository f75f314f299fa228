//! Plots of reports, as PNG and SVG, with a panel of lines or bars for each quantity and group of rows.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::instrument::{Column, Description, Quantity, Shape};
use crate::library::LibraryKind;
use crate::record::{Case, Measurement};
use crate::report::{By, Report, Row};
use crate::scenario::{duration_text, size_text};

mod bars;
mod legend;
mod links;

pub use links::draw_sweep;

use bars::{Heights, bars_panel};
use legend::{Area, FONT, Marker, Name, draw_marker};

/// Error of a plot.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {path}: {reason}")]
pub struct PlotError {
    path: String,
    reason: String,
}

/// Draws a report into `folder`, as SVG and as PNG. Returns the paths. A report without any measurement has
/// no plot.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn draw(report: &Report, by: By, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let rows = report.rows();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let (panels, shape) = (panels(report, &rows), report.workload.description().shape);
    let sheet = Sheet { title: report.title(), note: note(report, by), size: size(panels.len()) };
    sheet.draw(&folder.join(report.stem()), &Panels { report, panels, shape, by })
}

/// Contents of the parts of a sheet, for any backend.
trait Parts {
    fn count(&self) -> usize;

    fn draw<B: DrawingBackend>(
        &self,
        index: usize,
        area: &Area<'_, B>,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static;
}

/// A picture: parts between a title and a note.
struct Sheet {
    title: String,
    note: String,
    /// Size in pixels.
    size: (u32, u32),
}

impl Sheet {
    /// Draws the sheet as SVG and as PNG.
    fn draw(&self, stem: &Path, parts: &impl Parts) -> Result<Vec<PathBuf>, PlotError> {
        let paths =
            ["svg", "png"].map(|ending| PathBuf::from(format!("{}.{ending}", stem.display())));
        let [svg, png] = &paths;
        let named = |path: &Path, error: Box<dyn Error>| PlotError {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        fonts().map_err(|error| named(svg, error))?;
        self.draw_svg(parts, svg).map_err(|error| named(svg, error))?;
        self.draw_png(parts, png).map_err(|error| named(png, error))?;
        Ok(paths.into())
    }

    fn draw_svg(&self, parts: &impl Parts, path: &Path) -> Result<(), Box<dyn Error>> {
        let mut text = String::new();
        let backend = SVGBackend::with_string(&mut text, self.size);
        self.picture(parts, &backend.into_drawing_area())?;
        std::fs::write(path, text)?;
        Ok(())
    }

    fn draw_png(&self, parts: &impl Parts, path: &Path) -> Result<(), Box<dyn Error>> {
        let (width, height) = self.size;
        let mut pixels = vec![0; 3 * (width * height) as usize];
        let backend = BitMapBackend::with_buffer(&mut pixels, self.size);
        self.picture(parts, &backend.into_drawing_area())?;
        let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&pixels)?;
        Ok(())
    }

    fn picture<B: DrawingBackend>(
        &self,
        parts: &impl Parts,
        area: &Area<'_, B>,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        area.fill(&WHITE)?;
        let area = area.margin(8, 0, 0, 0).titled(&self.title, (FONT, 22))?;
        let (width, height) = area.dim_in_pixel();
        let (body, foot) = area.split_vertically(height.saturating_sub(26));
        let style = (FONT, 13).into_font().color(&NOTE).pos(Pos::new(HPos::Center, VPos::Top));
        foot.draw(&Text::new(self.note.as_str(), (width as i32 / 2, 4), style))?;
        for (index, area) in body.split_evenly(grid(parts.count())).iter().enumerate() {
            if index < parts.count() {
                parts.draw(index, area)?;
            }
        }
        body.present()?;
        Ok(())
    }
}

/// Registers the built-in font, because a machine that measures may have none.
fn fonts() -> Result<(), Box<dyn Error>> {
    plotters::style::register_font(FONT, FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the font cannot be read".into())
}

/// Returns the machine and the statistic over rounds.
fn note(report: &Report, by: By) -> String {
    let environment = &report.environment;
    format!(
        "{}, {} cores, {}; {} {} rounds, libraries in turn; {}; load {:.1} to {:.1}",
        environment.processor,
        environment.cores,
        environment.kernel,
        match by {
            By::Median => "median of",
            By::Least => "least disturbed of",
        },
        report.rounds,
        environment.when(),
        environment.load_before,
        environment.load_after,
    )
}

/// Panels of a report, as its instrument defines them.
struct Panels<'a> {
    report: &'a Report,
    panels: Vec<Panel<'a>>,
    shape: Shape,
    by: By,
}

impl Parts for Panels<'_> {
    fn count(&self) -> usize {
        self.panels.len()
    }

    fn draw<B: DrawingBackend>(
        &self,
        index: usize,
        area: &Area<'_, B>,
    ) -> Result<(), Box<dyn Error>>
    where
        B::ErrorType: 'static,
    {
        let (report, panel, by) = (self.report, &self.panels[index], self.by);
        match self.shape {
            Shape::Lines => lines_panel(report, panel, by, area),
            Shape::Bars => bars_panel(report, panel, by, area),
            Shape::Trace => trace_panel(report, panel, area),
        }
    }
}

/// A part of the picture with axes of its own.
struct Panel<'a> {
    /// Common part of its rows, if there are several panels.
    title: String,
    quantity: Quantity,
    rows: Vec<&'a Row>,
}

/// Returns the panels of a report: one for each group of rows and quantity.
fn panels<'a>(report: &Report, rows: &'a [Row]) -> Vec<Panel<'a>> {
    let description = report.workload.description();
    let is_drawn = |row: &&Row| (description.is_drawn)(row.case, row.statistic);
    let rows: Vec<&Row> = rows.iter().filter(is_drawn).collect();
    if description.shape == Shape::Trace {
        let first = rows.iter().find(|row| traces(report, row).next().is_some());
        let panel = |row: &&'a Row| Panel {
            title: String::new(),
            quantity: Quantity::Bandwidth,
            rows: vec![*row],
        };
        return first.map(panel).into_iter().collect();
    }
    let mut titles: Vec<String> = Vec::new();
    for row in &rows {
        let title = panel_title(description, row);
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let time = || description.draws_time.then_some(Quantity::Time);
    let quantities = || match description.draws_of_limit && report.has_limit() {
        true => vec![Quantity::OfLimit],
        false => time().into_iter().chain(description.figure).collect(),
    };
    let of = |title: &String, quantity| {
        let has_value = |row: &&Row| {
            (0..row.cells.len()).any(|index| row.value(index, quantity, By::Median).is_some())
        };
        let rows = rows.iter().copied();
        let rows = rows.filter(|row| panel_title(description, row) == *title);
        let rows: Vec<&Row> = rows.filter(has_value).collect();
        (!rows.is_empty()).then(|| Panel { title: title.clone(), quantity, rows })
    };
    let of = |title| quantities().into_iter().filter_map(move |quantity| of(title, quantity));
    titles.iter().flat_map(of).collect()
}

fn panel_title(description: &Description, row: &Row) -> String {
    let text = |column: &Column| match column {
        Column::Operation => row.operation.clone(),
        Column::Statistic => row.statistic.name().to_owned(),
        Column::Ranks => format!("{} ranks", row.case.ranks),
        Column::Bytes(head)
        | Column::Count(head)
        | Column::Length(head)
        | Column::Duration(head)
        | Column::Word(head, _) => {
            format!("{head}: {}", column.text(&row.operation, row.case, row.statistic))
        }
    };
    description.panels.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// Rows and columns of panels.
fn grid(panels: usize) -> (usize, usize) {
    let columns = panels.clamp(1, 2);
    (panels.div_ceil(columns), columns)
}

/// Returns the size of the picture, in pixels.
fn size(panels: usize) -> (u32, u32) {
    let (rows, _) = grid(panels);
    (WIDTH, FRAME_HEIGHT + PANEL_HEIGHT * rows as u32)
}

fn time_label(report: &Report, quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Time => report.workload.description().time,
        Quantity::Bandwidth => "bandwidth",
        Quantity::Rate => "messages a second",
        Quantity::OfLimit => "time / limit of the link",
        Quantity::Share(share) => share.label,
    }
}

fn tick(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Time => time_text(value),
        Quantity::Bandwidth if value >= 1000.0 => format!("{} Gb/s", value / 1000.0),
        Quantity::Bandwidth => format!("{value} Mb/s"),
        Quantity::Rate if value < 1.0 => format!("{} k/s", rounded(value * 1e3)),
        Quantity::Rate => format!("{value} M/s"),
        Quantity::OfLimit => format!("{}", rounded(value)),
        Quantity::Share(_) => format!("{} %", rounded(value * 100.0)),
    }
}

/// Position of a row on the axis: the counted number, plus one if it may be zero.
#[derive(Clone, Copy)]
struct Axis {
    column: Column,
    shift: u64,
}

impl Axis {
    fn of(description: &Description, rows: &[&Row]) -> Self {
        let column = description.axis.last().copied().unwrap_or(Column::Operation);
        let has_none = rows.iter().any(|row| column.number(row.case) == 0);
        Self { column, shift: u64::from(has_none) }
    }

    fn at(self, case: Case) -> f64 {
        (self.column.number(case) + self.shift) as f64
    }

    fn text(self, at: f64) -> String {
        let number = (at.round() as u64).saturating_sub(self.shift);
        match self.column {
            Column::Bytes(_) | Column::Length(_) => size_text(number),
            Column::Duration(_) => duration_text(number),
            Column::Operation
            | Column::Statistic
            | Column::Ranks
            | Column::Count(_)
            | Column::Word(..) => number.to_string(),
        }
    }

    /// Returns the marks: powers, or the measured numbers if they are few.
    fn marks(self, rows: &[&Row], span: (f64, f64)) -> Vec<f64> {
        if self.shift == 0 && rows.len() > MARKS_MAX {
            return powers(span, SIZE_STEP);
        }
        let mut marks: Vec<f64> = rows.iter().map(|row| self.at(row.case)).collect();
        marks.dedup();
        marks
    }
}

struct PlotLine {
    name: String,
    color: RGBColor,
    marker: Marker,
    width: u32,
    points: Vec<(f64, f64)>,
}

fn lines_panel<B: DrawingBackend>(
    report: &Report,
    panel: &Panel,
    by: By,
    area: &Area<'_, B>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let axis = Axis::of(report.workload.description(), &panel.rows);
    let lines = lines(report, panel, by, axis);
    let quantity = panel.quantity;
    let xs = span(lines.iter().flat_map(|line| &line.points).map(|point| point.0), 1.3);
    let axes = Axes {
        head: axis.column.head(),
        marks: axis.marks(&panel.rows, xs),
        name: &|at| axis.text(at),
        label: time_label(report, quantity),
        value: &|value| tick(quantity, value),
    };
    curves(&panel.title, &lines, &axes, area)
}

/// Labels of the axes of curves.
struct Axes<'a> {
    head: &'static str,
    marks: Vec<f64>,
    name: &'a dyn Fn(f64) -> String,
    label: &'static str,
    value: &'a dyn Fn(f64) -> String,
}

/// Draws lines, both scales logarithmic, and a legend below them.
fn curves<B: DrawingBackend>(
    title: &str,
    lines: &[PlotLine],
    axes: &Axes<'_>,
    area: &Area<'_, B>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let name = |line: &PlotLine| {
        let PlotLine { color, marker, width, .. } = *line;
        Name { text: line.name.clone(), color, marker, width }
    };
    // Ours is drawn last, and named first.
    let names: Vec<Name> = lines.iter().rev().map(name).collect();
    let (area, below) = legend::split(area, &names);
    legend::draw(&below, &names)?;
    let drawn = || lines.iter().flat_map(|line| &line.points);
    let xs = span(drawn().map(|point| point.0), 1.3);
    let ys = span(drawn().map(|point| point.1), 1.6);
    let mut chart = builder(title, &area).build_cartesian_2d(
        (xs.0..xs.1).log_scale().with_key_points(axes.marks.clone()),
        (ys.0..ys.1).log_scale().with_key_points(ticks(ys)),
    )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(222, 222, 222))
        .x_desc(axes.head)
        .y_desc(axes.label)
        .x_label_formatter(&|at| (axes.name)(*at))
        .y_label_formatter(&|value| (axes.value)(*value))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    for line in lines {
        let (color, width) = (line.color, line.width);
        let style = color.stroke_width(width);
        let points = line.points.clone();
        match line.marker {
            Marker::Dashes => drop(chart.draw_series(DashedLineSeries::new(points, 7, 5, style))?),
            marker => {
                chart.draw_series(LineSeries::new(points.clone(), style))?;
                let origin = area.get_base_pixel();
                for at in points {
                    let (x, y) = chart.backend_coord(&at);
                    draw_marker(&area, marker, (x - origin.0, y - origin.1), color)?;
                }
            }
        }
    }
    Ok(())
}

/// Returns the samples of a row in their order, for each measured library, in its median round.
fn traces<'a>(
    report: &'a Report,
    row: &'a Row,
) -> impl Iterator<Item = (usize, &'a Measurement)> + 'a {
    report.entries.iter().enumerate().filter_map(move |(index, entry)| {
        let is_it = |read: &&Measurement| {
            read.operation == row.operation && read.case() == row.case && !read.trace_us.is_empty()
        };
        let mut reads: Vec<&Measurement> =
            entry.rounds.iter().filter_map(|round| round.iter().find(is_it)).collect();
        reads.sort_by(|one, other| one.mean_us.total_cmp(&other.mean_us));
        reads.get(reads.len() / 2).map(|read| (index, *read))
    })
}

/// Draws Mb/s of each message over its completion time.
fn trace_panel<B: DrawingBackend>(
    report: &Report,
    panel: &Panel,
    area: &Area<'_, B>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let Some(row) = panel.rows.first() else { return Ok(()) };
    let line = |(index, read): (usize, &Measurement)| {
        let mut end_s = 0.0;
        let point = |half_us: &f64| {
            end_s += 2e-6 * half_us;
            (end_s, panel.quantity.of(row.case, *half_us).unwrap_or(0.0))
        };
        (index, read.trace_us.iter().map(point).collect::<Vec<(f64, f64)>>())
    };
    let lines: Vec<_> = traces(report, row).map(line).collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let limit = row.limit(panel.quantity);
    let longest_s = points().map(|point| point.0).fold(0.0, f64::max);
    let fastest = points().map(|point| point.1).chain(limit).fold(0.0, f64::max);
    let width =
        |index: usize| if report.entries[index].library == LibraryKind::Canele { 3 } else { 2 };
    let mut names: Vec<Name> = lines
        .iter()
        .map(|(index, _)| Name {
            text: report.entries[*index].name(),
            color: look(report, *index).0,
            marker: Marker::Line,
            width: width(*index),
        })
        .collect();
    names.extend(limit.is_some().then(limit_name));
    let (area, below) = legend::split(area, &names);
    legend::draw(&below, &names)?;
    let mut chart = builder(&panel.title, &area)
        .build_cartesian_2d(0.0..longest_s * 1.02, Heights::of(vec![fastest], true, false))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(222, 222, 222))
        .x_desc("time")
        .y_desc(time_label(report, panel.quantity))
        .x_label_formatter(&|at| format!("{} s", rounded(*at)))
        .y_label_formatter(&|value| tick(panel.quantity, *value))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    if let Some(limit) = limit {
        let ends = [(0.0, limit), (longest_s, limit)];
        chart.draw_series(DashedLineSeries::new(ends, 7, 5, BLACK.stroke_width(2)))?;
    }
    for (index, points) in lines.into_iter().rev() {
        let style = look(report, index).0.stroke_width(width(index));
        chart.draw_series(LineSeries::new(points, style))?;
    }
    Ok(())
}

/// Name of the link's limit in a legend.
fn limit_name() -> Name {
    Name { text: LIMIT.into(), color: BLACK, marker: Marker::Dashes, width: 2 }
}

fn builder<'a, 'b, B: DrawingBackend>(
    title: &str,
    area: &'a Area<'b, B>,
) -> ChartBuilder<'a, 'b, B> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(12).x_label_area_size(46).y_label_area_size(88);
    if !title.is_empty() {
        builder.caption(title, (FONT, 16));
    }
    builder
}

/// Returns a line for each measured library, and one for the link's limit unless it is below all others. Ours
/// is drawn last.
fn lines(report: &Report, panel: &Panel, by: By, axis: Axis) -> Vec<PlotLine> {
    let mut lines: Vec<PlotLine> = report
        .entries
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let (color, marker) = look(report, index);
            let point = |row: &&Row| {
                let value = row.value(index, panel.quantity, by)?;
                Some((axis.at(row.case), value))
            };
            let points = panel.rows.iter().filter_map(point).collect();
            let is_ours = entry.library == LibraryKind::Canele;
            PlotLine {
                name: entry.name(),
                color,
                marker,
                points,
                width: if is_ours { 3 } else { 2 },
            }
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let least = values().fold(f64::INFINITY, f64::min);
    let greatest = values().fold(0.0, f64::max);
    let limit = |row: &&Row| {
        let value = row.limit(panel.quantity)?;
        let is_near = value > least / 2.0 && value < greatest * 2.0;
        is_near.then_some((axis.at(row.case), value))
    };
    let points: Vec<_> = panel.rows.iter().filter_map(limit).collect();
    if !points.is_empty() {
        let Name { text: name, color, marker, width } = limit_name();
        lines.push(PlotLine { name, color, marker, points, width });
    }
    lines.reverse();
    lines
}

/// Returns a colour that most people distinguish (Okabe and Ito), and a marker. Settings of Canele have
/// colours of their own.
fn look(report: &Report, index: usize) -> (RGBColor, Marker) {
    let entry = &report.entries[index];
    let before = report.entries[..index].iter().filter(|other| other.library == entry.library);
    let color = match entry.library {
        LibraryKind::Canele => OURS[before.count() % OURS.len()],
        LibraryKind::Mpich => RGBColor(0, 114, 178),
        LibraryKind::OpenMpi => RGBColor(0, 158, 115),
        LibraryKind::IntelMpi => RGBColor(204, 121, 167),
        LibraryKind::RawTcp if entry.variant.is_some() => RGBColor(60, 60, 60),
        LibraryKind::RawTcp | LibraryKind::Memory => RGBColor(110, 110, 110),
        LibraryKind::TcpStreams => RGBColor(170, 170, 170),
    };
    (color, Marker::of(entry.library))
}

const LIMIT: &str = "limit of the link";

const OURS: [RGBColor; 4] =
    [RGBColor(213, 94, 0), RGBColor(230, 159, 0), RGBColor(86, 180, 233), RGBColor(120, 60, 20)];

/// Returns the least and the greatest value, with room around.
fn span(values: impl Iterator<Item = f64>, room: f64) -> (f64, f64) {
    let (least, greatest) = values.fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
        (least.min(value), greatest.max(value))
    });
    (least / room, greatest * room)
}

/// Returns the powers of a base within a span.
fn powers(span: (f64, f64), base: f64) -> Vec<f64> {
    let first = (span.0.ln() / base.ln()).ceil() as i32;
    let last = (span.1.ln() / base.ln()).floor() as i32;
    (first..=last).map(|power| base.powi(power)).collect()
}

/// Returns the powers of ten within a span, with twice and five times them if they are few.
fn ticks(span: (f64, f64)) -> Vec<f64> {
    let tens = powers(span, 10.0);
    if tens.len() > 2 {
        return tens;
    }
    let decades = powers((span.0 / 10.0, span.1), 10.0);
    let all = decades.into_iter().flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]);
    all.filter(|tick| (span.0..=span.1).contains(tick)).collect()
}

fn time_text(time_us: f64) -> String {
    match time_us {
        ..1.0 => format!("{} ns", rounded(time_us * 1e3)),
        ..1e3 => format!("{} µs", rounded(time_us)),
        ..1e6 => format!("{} ms", rounded(time_us / 1e3)),
        _ => format!("{} s", rounded(time_us / 1e6)),
    }
}

/// Rounds to three significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    let factor = 10.0_f64.powi(digits.max(0));
    (value * factor).round() / factor
}

/// Colour of notes.
const NOTE: RGBColor = RGBColor(110, 110, 110);
/// Width of a picture, in pixels.
const WIDTH: u32 = 1280;
/// Height of the title and the note, in pixels.
const FRAME_HEIGHT: u32 = 70;
/// Height of a panel, in pixels.
const PANEL_HEIGHT: u32 = 490;
/// Maximum number of measured values that are marked on an axis.
const MARKS_MAX: usize = 6;
/// Base of the marks of sizes.
const SIZE_STEP: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::{Instrument, Workload};
    use crate::record::measurement;
    use crate::report::Entry;
    use crate::report::tests::sample;

    #[test]
    fn a_comparison_is_drawn_in_both_formats() {
        let folder = tempfile::tempdir().unwrap();
        let paths = draw(&sample(), By::Median, folder.path()).unwrap();
        let svg = std::fs::read_to_string(&paths[0]).unwrap();
        for text in ["Canele", "MPICH", "raw TCP", "limit of the link", "size", "1 MiB"] {
            assert!(svg.contains(text), "{text} is not in the plot");
        }
        assert!(!svg.contains("Open MPI"), "what was not measured has no line");
        let png = std::fs::read(&paths[1]).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        assert!(png.len() > 5_000, "{} bytes", png.len());
    }

    #[test]
    fn long_links_are_drawn_against_their_limit_and_rows_over_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut wan = sample();
        wan.workload = Workload::new(Instrument::Wan);
        let svg = std::fs::read_to_string(&draw(&wan, By::Median, folder.path()).unwrap()[0]);
        let svg = svg.unwrap();
        for text in ["time / limit of the link", "silence: 0; mean", "silence: 0; first"] {
            assert!(svg.contains(text), "{text} is not in the plot");
        }
        let mut row = wan;
        row.workload = Workload::new(Instrument::Slowstart);
        for entry in &mut row.entries {
            let reads = entry.rounds.iter_mut().flatten();
            reads.for_each(|read| read.trace_us = vec![30_000.0, 20_000.0, 15_000.0]);
        }
        let svg = std::fs::read_to_string(&draw(&row, By::Median, folder.path()).unwrap()[0]);
        let svg = svg.unwrap();
        for text in ["0.1 s", "bandwidth", "MPICH", "limit of the link"] {
            assert!(svg.contains(text), "{text} is not in the plot");
        }
    }

    #[test]
    fn collectives_are_drawn_as_bars() {
        let folder = tempfile::tempdir().unwrap();
        let case = |bytes| Case { bytes, count: 0, ranks: 2 };
        let round =
            vec![measurement("barrier", case(0), 60.0), measurement("allreduce", case(8), 70.0)];
        let report = Report {
            workload: Workload::new(Instrument::Oversubscribed),
            entries: vec![Entry { rounds: vec![round], ..Entry::new(LibraryKind::Canele, None) }],
            ..sample()
        };
        let svg =
            std::fs::read_to_string(&draw(&report, By::Least, folder.path()).unwrap()[0]).unwrap();
        assert!(svg.contains("allreduce; size: 8 B") && svg.contains("60 µs"));
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let report = Report { entries: vec![Entry::new(LibraryKind::Canele, None)], ..sample() };
        assert!(draw(&report, By::Least, folder.path()).unwrap().is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = draw(&sample(), By::Median, Path::new("/none/such")).unwrap_err().to_string();
        assert!(error.contains("/none/such/pingpong-wan.svg"), "{error}");
    }

    #[test]
    fn ticks_are_powers_and_times_have_units() {
        assert_eq!(powers((0.7, 120.0), 10.0), [1.0, 10.0, 100.0]);
        assert_eq!(ticks((0.7, 120.0)), [1.0, 10.0, 100.0]);
        assert_eq!(ticks((0.4, 12.0)), [0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(
            [0.171, 12.345, 5800.0, 2e6].map(time_text),
            ["171 ns", "12.3 µs", "5.8 ms", "2 s"]
        );
    }
}
