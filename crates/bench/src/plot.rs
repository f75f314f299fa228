//! Reports as plots, PNG and SVG: latency and bandwidth over size, or bars for collective operations.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::library::Kind;
use crate::report::{By, Report, Row};
use crate::scenario::{Workload, size_text};
use crate::statistics::bandwidth_mbit_per_s;

/// Why a plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {path}: {reason}")]
pub struct PlotError {
    path: String,
    reason: String,
}

/// Draws a report into `folder`, once as SVG and once as PNG, and returns where they are. A report
/// without any measurement has no plot.
///
/// # Errors
/// When a file cannot be written.
pub fn draw(report: &Report, by: By, folder: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let rows = report.rows();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let paths = ["svg", "png"].map(|ending| folder.join(format!("{}.{ending}", report.stem())));
    let [svg, png] = &paths;
    let named = |path: &Path, error: Box<dyn Error>| PlotError {
        path: path.display().to_string(),
        reason: error.to_string(),
    };
    fonts().map_err(|error| named(svg, error))?;
    draw_svg(report, &rows, by, svg).map_err(|error| named(svg, error))?;
    draw_png(report, &rows, by, png).map_err(|error| named(png, error))?;
    Ok(paths.into())
}

fn draw_svg(report: &Report, rows: &[Row], by: By, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    picture(report, rows, by, &SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
    std::fs::write(path, text)?;
    Ok(())
}

fn draw_png(report: &Report, rows: &[Row], by: By, path: &Path) -> Result<(), Box<dyn Error>> {
    let (width, height) = SIZE;
    let mut pixels = vec![0; 3 * (width * height) as usize];
    picture(report, rows, by, &BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}

/// The font goes with the program: a machine that measures may have none.
fn fonts() -> Result<(), Box<dyn Error>> {
    plotters::style::register_font(FONT, FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the font cannot be read".into())
}

type Area<'a, B> = DrawingArea<B, Shift>;

fn picture<B: DrawingBackend>(
    report: &Report,
    rows: &[Row],
    by: By,
    area: &Area<'_, B>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let title = format!("{}, {}", report.workload.title(), report.place.title());
    let area = area.margin(8, 0, 0, 0).titled(&title, (FONT, 22))?;
    let environment = &report.environment;
    let note = format!(
        "{}, {} cores, {}; {} {} rounds, libraries in turn; {}; load {:.1} to {:.1}",
        environment.processor,
        environment.cores,
        environment.kernel,
        match by {
            By::Median => "median of",
            By::Least => "least disturbed of",
        },
        report.rounds,
        environment.date,
        environment.load_before,
        environment.load_after,
    );
    let (width, height) = area.dim_in_pixel();
    let (body, foot) = area.split_vertically(height.saturating_sub(26));
    let style = (FONT, 13).into_font().color(&NOTE).pos(Pos::new(HPos::Center, VPos::Top));
    foot.draw(&Text::new(note, (width as i32 / 2, 4), style))?;
    match &report.workload {
        Workload::Pingpong { .. } => {
            let (left, right) = body.split_horizontally(width / 2);
            panel(report, rows, by, &left, Quantity::Time)?;
            panel(report, rows, by, &right, Quantity::Bandwidth)?;
        }
        Workload::Burst { .. } | Workload::Crowd { .. } => bars(report, rows, by, &body)?,
    }
    body.present()?;
    Ok(())
}

/// What is drawn over the size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Time,
    Bandwidth,
}

impl Quantity {
    fn of(self, bytes: u64, time_us: f64) -> f64 {
        match self {
            Self::Time => time_us,
            Self::Bandwidth => bandwidth_mbit_per_s(bytes, time_us),
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Time => "half a round trip",
            Self::Bandwidth => "bandwidth",
        }
    }

    fn tick(self, value: f64) -> String {
        match self {
            Self::Time => time_text(value),
            Self::Bandwidth if value >= 1000.0 => format!("{} Gb/s", value / 1000.0),
            Self::Bandwidth => format!("{value} Mb/s"),
        }
    }
}

struct Line {
    name: &'static str,
    color: RGBColor,
    marker: Marker,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
enum Marker {
    Circle,
    Triangle,
    Cross,
    None,
}

fn panel<B: DrawingBackend>(
    report: &Report,
    rows: &[Row],
    by: By,
    area: &Area<'_, B>,
    quantity: Quantity,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let lines = lines(report, rows, by, quantity);
    let drawn = || lines.iter().flat_map(|line| &line.points);
    let xs = span(drawn().map(|point| point.0), 1.3);
    let ys = span(drawn().map(|point| point.1), 1.6);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(88)
        .build_cartesian_2d(
        (xs.0..xs.1).log_scale().with_key_points(powers(xs, SIZE_STEP)),
        (ys.0..ys.1).log_scale().with_key_points(ticks(ys)),
    )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(222, 222, 222))
        .x_desc("message size")
        .y_desc(quantity.label())
        .x_label_formatter(&|bytes| size_text(bytes.round() as u64))
        .y_label_formatter(&|value| quantity.tick(*value))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    for line in lines {
        let color = line.color;
        let width = if line.name == Kind::Canele.name() { 3 } else { 2 };
        let style = color.stroke_width(width);
        let points = line.points;
        match line.marker {
            Marker::None => chart.draw_series(DashedLineSeries::new(points, 7, 5, style))?,
            Marker::Circle => {
                let series = LineSeries::new(points, style.filled()).point_size(4);
                chart.draw_series(series)?
            }
            Marker::Triangle => {
                chart.draw_series(LineSeries::new(points.clone(), style))?;
                chart.draw_series(
                    points.into_iter().map(|at| TriangleMarker::new(at, 5, color.filled())),
                )?
            }
            Marker::Cross => {
                chart.draw_series(LineSeries::new(points.clone(), style))?;
                chart.draw_series(points.into_iter().map(|at| Cross::new(at, 4, style)))?
            }
        }
        .label(line.name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], color.stroke_width(width)));
    }
    let corner = match quantity {
        Quantity::Time => SeriesLabelPosition::UpperLeft,
        Quantity::Bandwidth => SeriesLabelPosition::LowerRight,
    };
    chart
        .configure_series_labels()
        .position(corner)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 14))
        .legend_area_size(30)
        .draw()?;
    Ok(())
}

/// A line for each library that was measured, and one for what the link allows, where it is not lower
/// than all that is drawn; in the order of drawing, ours above the others.
fn lines(report: &Report, rows: &[Row], by: By, quantity: Quantity) -> Vec<Line> {
    let mut lines: Vec<Line> = report
        .entries
        .iter()
        .map(|entry| {
            let (color, marker) = look(entry.library);
            let point = |row: &Row| {
                let time_us = row.time_us(entry.library, by)?;
                Some((row.bytes as f64, quantity.of(row.bytes, time_us)))
            };
            let points = rows.iter().filter_map(point).collect();
            Line { name: entry.library.name(), color, marker, points }
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let least = values().fold(f64::INFINITY, f64::min);
    let greatest = values().fold(0.0, f64::max);
    let limit = |row: &Row| {
        let value = quantity.of(row.bytes, row.limit_us?);
        let is_near = value > least / 2.0 && value < greatest * 2.0;
        is_near.then_some((row.bytes as f64, value))
    };
    let points: Vec<_> = rows.iter().filter_map(limit).collect();
    if !points.is_empty() {
        lines.push(Line { name: "limit of the link", color: BLACK, marker: Marker::None, points });
    }
    lines.reverse();
    lines
}

fn bars<B: DrawingBackend>(
    report: &Report,
    rows: &[Row],
    by: By,
    area: &Area<'_, B>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let measured = |kind: &Kind| rows.iter().any(|row| row.time_us(*kind, by).is_some());
    let kinds: Vec<Kind> =
        report.entries.iter().map(|entry| entry.library).filter(measured).collect();
    let greatest = rows
        .iter()
        .flat_map(|row| kinds.iter().filter_map(move |kind| row.time_us(*kind, by)))
        .fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(88)
        .build_cartesian_2d(0.0..rows.len() as f64, 0.0..greatest * 1.15)?;
    let middles: Vec<f64> = (0..rows.len()).map(|index| index as f64 + 0.5).collect();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(222, 222, 222))
        .y_desc("time of the operation")
        .y_label_formatter(&|value| time_text(*value))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    let width = 0.8 / kinds.len() as f64;
    let over = (FONT, 13).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Bottom));
    for (place, kind) in kinds.iter().enumerate() {
        let color = look(*kind).0;
        let left = move |index: usize| index as f64 + 0.1 + place as f64 * width;
        let drawn: Vec<(usize, f64)> = rows
            .iter()
            .enumerate()
            .filter_map(|(index, row)| Some((index, row.time_us(*kind, by)?)))
            .collect();
        chart
            .draw_series(drawn.iter().map(|(index, time_us)| {
                let x = left(*index);
                Rectangle::new([(x, 0.0), (x + width * 0.92, *time_us)], color.filled())
            }))?
            .label(kind.name())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 22, y + 5)], color.filled()));
        chart.draw_series(drawn.iter().map(|(index, time_us)| {
            let at = (left(*index) + width * 0.46, *time_us + greatest * 0.01);
            Text::new(time_text(*time_us), at, over.clone())
        }))?;
    }
    let under = (FONT, 15).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    for (row, middle) in rows.iter().zip(middles) {
        let (x, y) = chart.backend_coord(&(middle, 0.0));
        let name = match row.bytes {
            0 => row.operation.clone(),
            bytes => format!("{} of {}", row.operation, size_text(bytes)),
        };
        area.strip_coord_spec().draw(&Text::new(name, (x, y + 12), under.clone()))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 14))
        .legend_area_size(30)
        .draw()?;
    Ok(())
}

/// Colours that most people tell apart (Okabe and Ito), and a marker besides.
fn look(kind: Kind) -> (RGBColor, Marker) {
    match kind {
        Kind::Canele => (RGBColor(213, 94, 0), Marker::Circle),
        Kind::Mpich => (RGBColor(0, 114, 178), Marker::Triangle),
        Kind::OpenMpi => (RGBColor(0, 158, 115), Marker::Cross),
        Kind::IntelMpi => (RGBColor(204, 121, 167), Marker::Circle),
        Kind::RawTcp => (RGBColor(110, 110, 110), Marker::Cross),
    }
}

/// From the least to the greatest value, and a factor of room.
fn span(values: impl Iterator<Item = f64>, room: f64) -> (f64, f64) {
    let (least, greatest) = values.fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
        (least.min(value), greatest.max(value))
    });
    (least / room, greatest * room)
}

/// The powers of a base within a span.
fn powers(span: (f64, f64), base: f64) -> Vec<f64> {
    let first = (span.0.ln() / base.ln()).ceil() as i32;
    let last = (span.1.ln() / base.ln()).floor() as i32;
    (first..=last).map(|power| base.powi(power)).collect()
}

/// The powers of ten within a span, and where those are few, twice and five times them.
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

/// Three digits that matter.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    let factor = 10.0_f64.powi(digits.max(0));
    (value * factor).round() / factor
}

const FONT: &str = "sans-serif";
/// The colour of what explains.
const NOTE: RGBColor = RGBColor(110, 110, 110);
/// Pixels.
const SIZE: (u32, u32) = (1280, 560);
/// Sizes are marked at each power of this.
const SIZE_STEP: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::measurement;
    use crate::report::Entry;
    use crate::report::tests::sample;

    #[test]
    fn a_comparison_is_drawn_in_both_formats() {
        let folder = tempfile::tempdir().unwrap();
        let paths = draw(&sample(), By::Median, folder.path()).unwrap();
        let svg = std::fs::read_to_string(&paths[0]).unwrap();
        for text in ["Canele", "MPICH", "raw TCP", "limit of the link", "message size", "1 MiB"] {
            assert!(svg.contains(text), "{text} is not in the plot");
        }
        assert!(!svg.contains("Open MPI"), "what was not measured has no line");
        let png = std::fs::read(&paths[1]).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        assert!(png.len() > 5_000, "{} bytes", png.len());
    }

    #[test]
    fn collectives_are_drawn_as_bars() {
        let folder = tempfile::tempdir().unwrap();
        let round = vec![measurement("barrier", 0, 60.0), measurement("allreduce", 8, 70.0)];
        let report = Report {
            workload: Workload::Crowd { ranks: 16 },
            entries: vec![Entry { rounds: vec![round], ..Entry::new(Kind::Canele) }],
            ..sample()
        };
        let svg =
            std::fs::read_to_string(&draw(&report, By::Least, folder.path()).unwrap()[0]).unwrap();
        assert!(svg.contains("allreduce of 8 B") && svg.contains("60 µs"));
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let report = Report { entries: vec![Entry::new(Kind::Canele)], ..sample() };
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
