"""Make the font of the pictures: `python3 assets/font/subset.py iosevka-latin-400-normal.woff`.

The input is Iosevka (SIL Open Font License 1.1) from the npm package @fontsource/iosevka, version 5.3.0. Needs the
Python packages fonttools 4.68.0 and brotli 1.2.0. Writes marks.ttf, which draws PNG, and marks.woff2, which SVG embeds.
"""

import os
import sys

from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

# Letters of model output, then every block from which the program draws marks.
BLOCKS = [
    (0x20, 0x7E), (0xA0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x2010, 0x2027), (0x2030, 0x203A), (0x20AC, 0x20AC),
    (0x2070, 0x2094), (0x1D40, 0x1D40), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2300, 0x2335), (0x23CE, 0x23CF),
    (0x240D, 0x240D), (0x2400, 0x2424), (0x2500, 0x25FF), (0x2605, 0x2606), (0x2713, 0x271A), (0x276F, 0x276F),
    (0x27E8, 0x27E9), (0x2800, 0x28FF), (0xFFFD, 0xFFFD),
]
# Marks that Iosevka lacks: another one of its glyphs, or corners of an outline.
SAME = {0x23AF: 0x2500, 0x23CE: 0x21B5}
DRAWN = {
    0x270E: [[(60, 0), (100, 170), (350, 560), (450, 490), (200, 100)], [(370, 592), (405, 650), (500, 580), (470, 522)]],
    0x2442: [[(220, 0), (220, 330), (40, 600), (120, 640), (250, 430), (380, 640), (460, 600), (280, 330), (280, 0)]],
}


def main() -> None:
    font = TTFont(sys.argv[1])
    narrow(font)
    marks = font.getBestCmap()
    for code, source in SAME.items():
        add(font, code, marks[source])
    for code, outlines in DRAWN.items():
        draw(font, code, outlines)
    options = Options(layout_features=[], hinting=False, notdef_outline=True, name_IDs=[0, 13, 14], glyph_names=False)
    options.drop_tables += ["GSUB", "GPOS", "GDEF", "STAT", "gasp", "DSIG", "meta"]
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[code for first, last in BLOCKS for code in range(first, last + 1)] + [*SAME, *DRAWN])
    subsetter.subset(font)
    fill_cell(font)
    folder = os.path.dirname(os.path.abspath(__file__))
    for ending, flavor in [("ttf", None), ("woff2", "woff2")]:
        font.flavor = flavor
        path = os.path.join(folder, f"marks.{ending}")
        font.save(path)
        print(os.path.basename(path), os.path.getsize(path), "bytes,", font["maxp"].numGlyphs, "glyphs")


def narrow(font: TTFont) -> None:
    """Takes the form of one cell of every symbol that has one (Iosevka's feature NWID)."""
    table = font["GSUB"].table
    features = [record.Feature for record in table.FeatureList.FeatureRecord if record.FeatureTag == "NWID"]
    lookups = {index for feature in features for index in feature.LookupListIndex}
    for index in lookups:
        for part in table.LookupList.Lookup[index].SubTable:
            forms = getattr(part, "ExtSubTable", part).mapping
            for code, glyph in list(font.getBestCmap().items()):
                add(font, code, forms.get(glyph, glyph))


def add(font: TTFont, code: int, glyph: str) -> None:
    for table in font["cmap"].tables:
        if table.isUnicode():
            table.cmap[code] = glyph


def draw(font: TTFont, code: int, outlines: list) -> None:
    pen, name = TTGlyphPen(None), f"own{code:04X}"
    for corners in outlines:
        pen.moveTo(corners[0])
        for corner in corners[1:]:
            pen.lineTo(corner)
        pen.closePath()
    font.setGlyphOrder([*font.getGlyphOrder(), name])
    font["glyf"][name] = pen.glyph()
    font["hmtx"][name] = (font["hmtx"]["A"][0], min(x for corners in outlines for x, _ in corners))
    add(font, code, name)


def fill_cell(font: TTFont) -> None:
    """Sets the line to the height of the full block, so that lines of a box and bars meet."""
    bar = font["glyf"][font.getBestCmap()[0x2588]]
    top, bottom = bar.yMax, bar.yMin
    font["hhea"].ascent, font["hhea"].descent, font["hhea"].lineGap = top, bottom, 0
    table = font["OS/2"]
    table.sTypoAscender, table.sTypoDescender, table.sTypoLineGap = top, bottom, 0
    table.usWinAscent, table.usWinDescent = top, -bottom


main()
