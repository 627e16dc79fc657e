"""What pyproject.toml cannot say: in a wheel, and only there, the harness lies below echokv/_harness.

Names such as `eval`, `baselines` and `conf` are a repository's own; in site-packages they would be everybody's. An
editable install goes on showing the folders where they are.
"""

from tempfile import TemporaryDirectory

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

BELOW = "echokv._harness"
FILES = {"conf": ["*", "*/*", "*/*/*"], "results.paper": ["*.csv"], "scripts.slurm.bin": ["*"]}


class Wheel(bdist_wheel):
    def run(self) -> None:
        of = self.distribution
        moved = [name for name in of.packages if name.split(".")[0] != "echokv"]
        data = {**of.package_data, **FILES}
        places = {f"{BELOW}.{name}": name.replace(".", "/") for name in (*moved, *FILES)}
        of.packages = [*(name for name in of.packages if name not in moved), *places]
        of.package_dir = {BELOW: ".", **places}
        of.py_modules = [f"{BELOW}.run"]
        of.package_data = {f"{BELOW}.{name}": files for name, files in data.items()}
        self.dist_info_dir = None  # made before, it tells the repository's folders as top-level names
        with TemporaryDirectory() as fresh:  # what an earlier build left in build/ would be packed as well
            self.reinitialize_command("build").build_base = fresh
            super().run()


setup(cmdclass={"bdist_wheel": Wheel})
