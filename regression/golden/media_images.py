#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes media_images.json: encoded pictures, and XXH3 checksums of the pixels that Pillow and the image processors of transformers make of them.

Needs pillow, transformers, numpy and xxhash from PyPI. The processors are those of backend="pil", which resize as Pillow does.
"""
import base64
import io
import json
import pathlib
import random
import struct
import sys
import zlib

import numpy
import PIL
import transformers
import xxhash
from PIL import Image, ImageOps
from transformers import image_transforms


def formula(height, width):
    i, j, c = numpy.ogrid[0:height, 0:width, 0:3]
    return Image.fromarray(((37 * i + 91 * j + 53 * c + 7 * i * j) % 256).astype(numpy.uint8))


def smooth(height, width, channels=3):
    i, j, c = numpy.ogrid[0:height, 0:width, 0:channels]
    values = 128 + 90 * numpy.sin(i / 7 + c) * numpy.cos(j / 5 - c) + 30 * numpy.sin(i * j / 90)
    return Image.fromarray(values.astype(numpy.uint8).squeeze())


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def exif(orientation):
    return b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0) + b"\0\0\0\0"


def files():
    rgb, rgba = smooth(30, 41), smooth(23, 34, 4)
    palette = rgb.quantize(19)
    yield "rgb.png", encoded(rgb, "PNG")
    yield "grey.png", encoded(smooth(17, 29, 1), "PNG")
    yield "bits.png", encoded(smooth(20, 33, 1).convert("1"), "PNG")
    yield "grey_alpha.png", encoded(rgba.convert("LA"), "PNG")
    yield "rgba.png", encoded(rgba, "PNG")
    yield "palette.png", encoded(palette, "PNG")
    yield "palette_transparent.png", encoded(palette, "PNG", transparency=3)
    yield "rgb_transparent.png", encoded(rgb, "PNG", transparency=rgb.getpixel((5, 5)))
    yield "turned.png", encoded(rgb, "PNG", exif=exif(8))
    for quality, sampling in ((90, 0), (75, 1), (60, 2)):
        yield f"sampling{sampling}.jpg", encoded(smooth(45, 62), "JPEG", quality=quality, subsampling=sampling)
    yield "progressive.jpg", encoded(smooth(33, 47), "JPEG", progressive=True)
    yield "grey.jpg", encoded(smooth(31, 26, 1), "JPEG")
    yield "pixel.jpg", encoded(smooth(1, 1), "JPEG")
    for orientation in (3, 6):
        yield f"orientation{orientation}.jpg", encoded(smooth(19, 27), "JPEG", exif=exif(orientation))
    yield "lossy.webp", encoded(smooth(37, 44), "WEBP", quality=70)
    yield "lossless.webp", encoded(rgb, "WEBP", lossless=True)
    yield "alpha.webp", encoded(rgba, "WEBP", lossless=True, exact=True)
    yield "lossy_alpha.webp", encoded(rgba, "WEBP", quality=80)
    yield "turned.webp", encoded(rgb, "WEBP", quality=80, exif=exif(6))


# Files that must be refused, and a part of the reason.
def refused():
    rgb, pair = smooth(30, 41), [smooth(12, 9), formula(12, 9)]
    yield "cmyk.jpg", encoded(rgb.convert("CMYK"), "JPEG"), "CMYK"
    yield "animated.png", encoded(pair[0], "PNG", save_all=True, append_images=pair[1:]), "animated PNG"
    yield "animated.webp", encoded(pair[0], "WEBP", save_all=True, append_images=pair[1:]), "animated WebP"
    yield "picture.gif", encoded(rgb, "GIF"), "is a GIF file, which is not supported; convert it"
    yield "picture.tif", encoded(rgb, "TIFF"), "is a TIFF file"
    yield "picture.jp2", encoded(rgb, "JPEG2000"), "is a JPEG 2000 file"
    yield "picture.bmp", encoded(pair[0], "BMP"), "is a BMP file"


PROCESSORS = {
    "clip": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}},
    "clip_padded": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 20}, "crop_size": {"height": 35, "width": 30}},
    "clip_default": {"image_processor_type": "CLIPImageProcessorFast", "do_convert_rgb": True},
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 48, "width": 40}, "do_convert_rgb": None},
    "gemma": {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 42, "width": 42}, "do_pan_and_scan": None},
    "tiles": {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 200}, "max_image_size": {"longest_edge": 50}},
    "tiles_smol": {"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 90}, "max_image_size": {"longest_edge": 64}},
    "tiles_whole": {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 100}, "max_image_size": {"longest_edge": 50},
                    "do_image_splitting": False},
    "native": {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 20000},
    "native_size": {"image_processor_type": "Qwen2VLImageProcessorFast", "size": {"shortest_edge": 800, "longest_edge": 9000}, "patch_size": 7},
}
SHAPES = [(480, 640), (100, 37), (37, 100), (1, 1), (300, 65), (64, 64), (50, 50), (7, 180), (199, 3), (28, 29)]


def sum_of(array):
    return f"{xxhash.xxh3_64_intdigest(numpy.ascontiguousarray(array).tobytes()):016x}"


def prepared(config, image):
    name = config["image_processor_type"].removesuffix("Fast")
    settings = {k: v for k, v in config.items() if k != "image_processor_type"}
    processor = getattr(transformers, name + "Pil")(**settings)
    options = {"do_rescale": False, "do_normalize": False, "return_tensors": "np"}
    if name.startswith("Qwen"):
        grids = processor(image, **options)["image_grid_thw"]
        resized = processor.resize(numpy.moveaxis(numpy.array(image), -1, 0), processor.size,
                                   processor.resample, factor=processor.patch_size * processor.merge_size)
        return {"grid": [int(x) for x in grids[0][1:]], "items": [resized]}
    if name.startswith(("Idefics", "Smol")):
        result = processor([[image]], return_row_col_info=True, do_pad=False, **options)
        return {"tiles": [int(result["rows"][0][0]), int(result["cols"][0][0])], "items": list(result["pixel_values"][0])}
    return {"items": list(processor(image, **options)["pixel_values"])}


def described(result):
    items = [numpy.moveaxis(numpy.asarray(x), 0, -1).astype(numpy.uint8) for x in result.pop("items")]
    result["items"] = [[x.shape[0], x.shape[1], sum_of(x)] for x in items]
    if "tiles" in result:  # for the test of stores, which has only zlib's checksum
        result["crc"] = [[x.shape[0], x.shape[1], zlib.crc32(numpy.ascontiguousarray(x).tobytes())] for x in items]
    return result


def main():
    out = {"versions": {"pillow": PIL.__version__, "transformers": transformers.__version__}, "files": [], "refused": [], "resized": [], "prepared": []}
    decoded = {}
    for name, data in files():
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        rgb = image_transforms.convert_to_rgb(image, return_numpy=True)
        rgb = numpy.asarray(rgb)
        decoded[name] = Image.fromarray(rgb)
        out["files"].append({"name": name, "data": base64.b64encode(data).decode(), "height": rgb.shape[0], "width": rgb.shape[1], "sum": sum_of(rgb)})
    for name, data, reason in refused():
        out["refused"].append({"name": name, "data": base64.b64encode(data).decode(), "reason": reason})
    draw = random.Random(5)
    for _ in range(60):
        h, w, to_h, to_w = (draw.choice([1, 2, draw.randint(3, 40), draw.randint(41, 200)]) for _ in range(4))
        resample = draw.choice([1, 2, 3, 3, 4, 5])
        result = numpy.asarray(formula(h, w).resize((to_w, to_h), resample))
        out["resized"].append([h, w, to_h, to_w, resample, sum_of(result)])
    for key, config in PROCESSORS.items():
        sources = [(f"{h}x{w}", formula(h, w)) for h, w in (SHAPES[:3] if key == "clip_default" else SHAPES)]
        for source, image in sources + [(name, decoded[name]) for name in ("rgba.png", "orientation6.jpg", "lossy.webp")]:
            out["prepared"].append({"processor": key, "source": source, **described(prepared(config, image))})
    out["processors"] = PROCESSORS
    path = pathlib.Path(__file__).with_suffix(".json")
    rows = ",\n".join(f"{json.dumps(key)}: " + (("[\n" + ",\n".join(json.dumps(x) for x in value) + "]") if isinstance(value, list) else json.dumps(value))
                      for key, value in out.items())
    path.write_text("{" + rows + "}\n")
    print(f"{path}: {path.stat().st_size} bytes, {out['versions']}", file=sys.stderr)


main()
