# Rules of `make install PREFIX=...` and `cmake --install`: the program, its man pages and shell completions (which the
# program itself writes), decks, jobscripts that use the installed program, and a module file for Lmod and Environment Modules.
include(GNUInstallDirs)
set_target_properties(gyrfalcon PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # for libraries outside the system folders
install(TARGETS gyrfalcon)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/input/ DESTINATION share/gyrfalcon/input)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION share/doc/gyrfalcon)
install(FILES ${PROJECT_SOURCE_DIR}/jobscripts/demo.svg DESTINATION share/doc/gyrfalcon/jobscripts)  # image in README.md
set(jobscripts job launcher pbs-cpu pbs-gpu rank_gpu slurm-array slurm-cpu slurm-gpu)
list(TRANSFORM jobscripts REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/jobscripts/\\1.sh")
install(PROGRAMS ${jobscripts} DESTINATION share/gyrfalcon/jobscripts)
install(CODE "
  set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
  cmake_path(ABSOLUTE_PATH prefix NORMALIZE)
  set(version ${PROJECT_VERSION})
  set(root \"\$ENV{DESTDIR}\${prefix}\")
  # An installed script uses the installed scripts, decks and program by absolute paths, so it works from any folder.
  file(GLOB scripts \"\${root}/share/gyrfalcon/jobscripts/*.sh\")
  foreach(script IN LISTS scripts)
    execute_process(COMMAND sed -i -e \"s#build/[$](\\\\[ [^]]*\\\\] && echo cuda || echo release)/bin/gyrfalcon#\${prefix}/bin/gyrfalcon#\"
      -e \"s#build/release/bin/gyrfalcon; where ranks have devices build/cuda/bin/gyrfalcon#\${prefix}/bin/gyrfalcon#\"
      -e \"s#\\\\([^a-z/]\\\\)\\\\(jobscripts/[a-z_-]*\\\\.sh\\\\)#\\\\1\${prefix}/share/gyrfalcon/\\\\2#g\"
      -e \"s#\\\\([^a-z/]\\\\)\\\\(input/[a-z0-9.-]*\\\\.yaml\\\\)#\\\\1\${prefix}/share/gyrfalcon/\\\\2#g\" \"\${script}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  configure_file(\"${PROJECT_SOURCE_DIR}/jobscripts/modulefile.in\" \"\${root}/share/modulefiles/gyrfalcon/\${version}\" @ONLY)
  execute_process(COMMAND \"\${root}/bin/gyrfalcon\" manual \"\${root}\" RESULT_VARIABLE code ERROR_VARIABLE why OUTPUT_QUIET)
  if(NOT code EQUAL 0)
    message(WARNING \"man pages and shell completions are not installed, because the program does not run on this machine. Run gyrfalcon manual \${prefix} where it does. Error: \${why}\")
  endif()
  message(STATUS \"to use it: module use \${prefix}/share/modulefiles && module load gyrfalcon, or PATH=\${prefix}/bin:$PATH\")
")
